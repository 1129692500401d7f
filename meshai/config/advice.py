"""What is allowed but deserves a second look; each line names the key and the reason."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meshai.config.model import Endpoint, Settings

MIN_SPACING_S = 2.0
"""The firmware drops a text that follows another by less (docs/protocol.md §3.5)."""


def advise(settings: Settings) -> list[str]:
    """Warnings about values that are valid and rarely meant."""
    return [*_pacing(settings), *_people(settings), *_servers(settings)]


def advise_file(source: Path, data: dict[str, Any]) -> list[str]:
    """A warning when others can read a file that holds a secret."""
    try:
        mode = source.stat().st_mode
    except OSError:
        return []
    if mode & 0o004 and _holds_secret(data):
        return [f"everybody on this computer can read {source}, which holds a key: chmod o-rwx {source}"]
    return []


def _pacing(settings: Settings) -> Iterator[str]:
    if settings.reply.spacing_s < MIN_SPACING_S:
        yield (
            f"reply.spacing_s: {settings.reply.spacing_s:g} is below {MIN_SPACING_S}: a real node silently drops texts "
            "that follow that fast (fine on a virtual mesh)"
        )
    if settings.connection.type == "ble":
        yield "connection.type: ble is best effort; serial and tcp are the dependable ways"


def _people(settings: Settings) -> Iterator[str]:
    access = settings.access
    if not access.require_pki:
        yield "access.require_pki: false lets anybody write in another person's name"
    for admin in access.admins:
        if " " not in admin:
            yield (
                f"access.admins: {admin} has no public key, so whoever first shows a key with this number is admin; "
                f'write "{admin} <base64 public key>"'
            )
    both = sorted(set(access.allow) & set(access.block))
    if both:
        yield f"access.block: {', '.join(both)} also in access.allow; block wins"


def _servers(settings: Settings) -> Iterator[str]:
    for number, endpoint in enumerate(settings.llm.endpoints):
        key = f"llm.endpoints.{number}"
        parts = urlsplit(endpoint.base_url)
        if parts.path in ("", "/"):
            yield f"{key}.base_url: nearly every server wants /v1 at the end"
        if parts.scheme == "http" and _has_key(endpoint) and not _is_near(parts.hostname or ""):
            yield f"{key}.base_url: the key would travel unencrypted; use https://"


def _has_key(endpoint: Endpoint) -> bool:
    return bool(endpoint.api_key.get_secret_value() or endpoint.api_key_file)


def _is_near(host: str) -> bool:
    """This computer or the local network, as far as the name tells."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".home.arpa"))
    return address.is_private or address.is_loopback or address.is_link_local


def _holds_secret(value: object) -> bool:
    if isinstance(value, dict):
        return any(
            (key in ("api_key", "token") and isinstance(inner, str) and inner != "") or _holds_secret(inner)
            for key, inner in value.items()
        )
    return isinstance(value, list) and any(_holds_secret(item) for item in value)
