"""Where an endpoint's key comes from, and what may never be written anywhere because of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from meshai.config.model import Endpoint
from meshai.errors import MissingError, UsageError
from meshai.llm.places import leaves_house

log = logging.getLogger(__name__)

CREDENTIAL = "llm_api_key"
NO_KEY = SecretStr("")


def keys_for(endpoints: Sequence[Endpoint], environ: Mapping[str, str] | None = None) -> list[SecretStr]:
    """The key of each endpoint; an empty one where there is none.

    An endpoint's own ``api_key`` or ``api_key_file`` comes first. The one shared key, ``LLM_API_KEY`` or the systemd
    credential ``llm_api_key``, goes to one server only (the first that is outside the house, else the first), lest a
    cloud key be sent in clear to a machine on the local network. Raises MissingError, UsageError.
    """
    shared = _shared_key(os.environ if environ is None else environ)
    lacking = [endpoint for endpoint in endpoints if not _has_own(endpoint)]
    outside = [endpoint for endpoint in lacking if leaves_house(endpoint.base_url)]
    first = next(iter(outside or lacking), None)
    server = urlsplit(first.base_url).netloc if first is not None else ""
    return [
        _own_key(endpoint)
        if _has_own(endpoint)
        else (shared if urlsplit(endpoint.base_url).netloc == server else NO_KEY)
        for endpoint in endpoints
    ]


def scrub(text: str, key: SecretStr) -> str:
    """The text without the key: servers like to quote it in their errors."""
    secret = key.get_secret_value()
    return text.replace(secret, "***") if secret else text


def _has_own(endpoint: Endpoint) -> bool:
    return bool(endpoint.api_key.get_secret_value().strip() or endpoint.api_key_file)


def _own_key(endpoint: Endpoint) -> SecretStr:
    if endpoint.api_key.get_secret_value().strip():
        return _checked(endpoint.api_key.get_secret_value(), f"llm.endpoints: api_key of {endpoint.name}")
    path = Path(endpoint.api_key_file).expanduser()
    text = _read(path, f"api_key_file of endpoint {endpoint.name}")
    if path.stat().st_mode & 0o077:
        log.warning("%s can be read by other users: chmod 600 %s", path, path)
    return _checked(text, str(path))


def _shared_key(environ: Mapping[str, str]) -> SecretStr:
    if environ.get("LLM_API_KEY", "").strip():
        return _checked(environ["LLM_API_KEY"], "LLM_API_KEY")
    directory = environ.get("CREDENTIALS_DIRECTORY", "")
    path = Path(directory) / CREDENTIAL
    if not directory or not path.is_file():
        return NO_KEY
    return _checked(_read(path, "systemd credential"), f"systemd credential {CREDENTIAL}")


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise MissingError(f"{what}: cannot read {path}: {error.strerror or 'error'}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{what}: {path} is not a text file") from None


def _checked(text: str, where: str) -> SecretStr:
    """The key without surrounding white space; what cannot stand in a header is refused without being shown."""
    key = text.strip()
    if not key.isascii() or any(not char.isprintable() or char == " " for char in key):
        raise UsageError(f"{where}: that is not one key (spaces, line breaks or foreign letters in it)")
    return SecretStr(key)
