"""Writing a configuration: whole or not at all, for its owner's eyes only."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meshai.errors import MissingError
from meshai.ops.paths import SERVICE_CONFIG

KEY_NAME = "llm_api_key"
"""Also the name of the systemd credential: the unit finds the key by itself (systemd/meshai.service)."""

Check = Callable[[Path], object]


def write(target: Path, data: bytes, check: Check = lambda _path: None) -> None:
    """Replace or create ``target`` in one step, mode 0600; an existing file keeps its owner and its group's rights.

    ``check`` sees the new file before it takes its place. After any failure, Ctrl-C included, the old file is as it
    was and nothing is left over. Raises MissingError when the disk or the directory refuses.
    """
    target = target.resolve()  # a symlink stays one
    with _explained(target):
        _make_directory(target.parent)
        before = target.stat() if target.exists() else None
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        new = Path(name)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - mkstemp gives a descriptor
                file.write(data)
                file.flush()
                _adopt(file.fileno(), before)
                os.fsync(file.fileno())
            check(new)
            new.replace(target)
        except BaseException:  # nothing half-written stays
            new.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)


@dataclass(frozen=True, slots=True)
class Plan:
    """The texts to write; ``key`` None: no key file."""

    config: Path
    text: str
    key_file: Path | None = None
    key: str = ""


def write_all(plan: Plan, check: Check) -> None:
    """Write the key file, then the configuration that may name it. When the second fails the first is put back."""
    old: bytes | None = None
    if plan.key_file is not None:
        with _explained(plan.key_file):
            old = plan.key_file.read_bytes() if plan.key_file.exists() else None
        write(plan.key_file, plan.key.encode("utf-8") + b"\n")
    try:
        write(plan.config, plan.text.encode("utf-8"), check)
    except BaseException:  # the key file goes back too
        if plan.key_file is not None:
            _put_back(plan.key_file, old)
        raise


def key_file_for(config: Path) -> Path:
    """Where a key goes: beside the configuration."""
    return config.resolve().parent / KEY_NAME


def is_for_service(config: Path) -> bool:
    """The unit reads this file, and hands the key over as a credential that only root can read."""
    return config.absolute() == SERVICE_CONFIG


def _put_back(path: Path, old: bytes | None) -> None:
    if old is None:
        path.unlink(missing_ok=True)
    else:
        write(path, old)


def _adopt(descriptor: int, before: os.stat_result | None) -> None:
    if before is None:
        return
    with contextlib.suppress(PermissionError):  # not root: the file becomes ours, as with any editor
        os.fchown(descriptor, before.st_uid, before.st_gid)
        # The daemon's group may have to read it (docs/install.md: root:meshai 0640); others never.
        os.fchmod(descriptor, 0o600 | (stat.S_IMODE(before.st_mode) & 0o040))


def _make_directory(directory: Path) -> None:
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o755 if place == SERVICE_CONFIG.parent else 0o700, exist_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MissingError(_reason(target, error)) from None


def _reason(target: Path, error: OSError) -> str:
    why = (error.strerror or "error").lower()
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return f"{target} was not written, nothing was changed: {why}. Make room, then run setup again"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{target} was not written: {why}. Choose another place with --output, or run setup with sudo"
    return f"{target} was not written: {why}"
