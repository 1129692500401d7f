"""The o200k vocabulary for tiktoken, without a network.

tiktoken fetches a vocabulary from the internet unless its cache holds a file of the right name and sum, and it
deletes a file with a wrong sum and fetches again. So the file in the package is unpacked once into a directory of
ours, its sum is checked before every load, and tiktoken is pointed there.
"""

from __future__ import annotations

import hashlib
import lzma
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path

NAME = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""What tiktoken calls the file: SHA-1 of the address it would fetch it from."""
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def default_cache() -> Path:
    """Where the unpacked file lies: systemd's cache directory, else the user's."""
    base = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if base:
        return Path(base) / "tiktoken"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "meshai" / "tiktoken"


def load(cache: Path) -> Callable[[str], int]:
    """A function that counts o200k tokens. Blocking: 0.3 s on a PC, seconds on a Pi.

    Raises OSError, ValueError or ImportError; never opens a connection.
    """
    ensure(cache)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(cache)
    import tiktoken

    encoding = tiktoken.get_encoding("o200k_base")

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))  # encode() refuses "<|endoftext|>" from a mesh user

    count("ready")  # the first call builds the regular expression
    return count


def ensure(cache: Path) -> Path:
    """Unpack the packaged file into ``cache`` unless an intact copy is there; returns its path."""
    target = cache / NAME
    if _is_intact(target):
        return target
    packed = resources.files("meshai.llm").joinpath("vocab", "o200k_base.tiktoken.xz").read_bytes()
    data = lzma.decompress(packed)
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise ValueError("the packaged vocabulary is damaged: reinstall MeshAI")
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = cache / f"{NAME}.{os.getpid()}.tmp"
    scratch.write_bytes(data)
    scratch.replace(target)
    return target


def _is_intact(path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    except OSError:
        return False
