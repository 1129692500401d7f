"""What the operator decided, and what is wrong with an answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from meshai.config.document import Path
from meshai.config.model import NODE_ID, Settings
from meshai.errors import UsageError

DEFAULT_TCP_PORT = 4403
MAX_OWNER = 60


@dataclass(slots=True)
class Answers:
    """None: leave the setting as it is."""

    serial_port: str | None = None
    tcp: tuple[str, int] | None = None
    owner: str | None = None
    allow: list[str] | None = None
    require_pki: bool | None = None
    no_model: bool = False
    base_url: str | None = None
    model: str | None = None
    api_key_file: str | None = None
    key: str = field(default="", repr=False)  # to be written to a file of its own


def owner(text: str) -> str:
    """The owner as shown by ``!about``; raises UsageError."""
    text = " ".join(text.split())
    if len(text) > MAX_OWNER:
        raise UsageError(f"that has {len(text)} characters, at most {MAX_OWNER} fit")
    if not text.isprintable():
        raise UsageError("that holds characters that cannot be shown")
    return text


def node_ids(text: str) -> list[str]:
    """Node ids, separated by spaces or commas; raises UsageError."""
    found: list[str] = []
    for word in text.replace(",", " ").split():
        node = word.strip("\"'").lower()
        node = node if node.startswith("!") else f"!{node}"
        if not NODE_ID.match(node):
            raise UsageError(f"a node id looks like !a1b2c3d4, eight hexadecimal digits, not {word[:40]!r}")
        if node not in found:
            found.append(node)
    return found


def host(text: str) -> tuple[str, int]:
    """``host``, ``host:port`` or ``[v6]:port`` of a node on the network; raises UsageError."""
    text = text.strip()
    if "://" in text:
        raise UsageError("only the name or the address, like meshtastic.local or 192.168.1.20")
    if text.count(":") > 1 and not text.startswith("["):
        text = f"[{text}]"  # a bare IPv6 address
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port = None, None
    if not name or parts.path or re.search(r"[\s@?#]", text) or port == 0:
        raise UsageError(f"that is not a host, or a host and a port: {text[:60]!r}")
    return name, port or DEFAULT_TCP_PORT


def model_url(text: str) -> str:
    """The address of a model server, ``http://`` added where it is missing; raises UsageError."""
    text = text.strip()
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    for ending in ("/chat/completions", "/completions", "/models"):
        url = url.removesuffix(ending)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", url):
        raise UsageError("an address looks like http://127.0.0.1:11434/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("write the address without user, password or anything behind a ? or #; a key is asked for")
    return url


def with_v1(url: str) -> str | None:
    """The address most servers mean, None when it has a path already."""
    return f"{url}/v1" if urlsplit(url).path in ("", "/") else None


def changes(answers: Answers, settings: Settings, data: Mapping[str, Any]) -> dict[Path, object]:
    """What to set in a file with these values (``data`` as written, ``settings`` with the defaults)."""
    wanted: dict[Path, object] = {}
    if answers.serial_port is not None:
        wanted |= {("connection", "type"): "serial", ("connection", "serial_port"): answers.serial_port}
    if answers.tcp is not None:
        name, port = answers.tcp
        wanted |= {("connection", "type"): "tcp", ("connection", "tcp_host"): name, ("connection", "tcp_port"): port}
    plain = {("bot", "owner"): answers.owner, ("access", "allow"): answers.allow}
    wanted |= {path: value for path, value in plain.items() if value is not None}
    if answers.require_pki is not None:
        wanted["access", "require_pki"] = answers.require_pki
    current = settings.model_dump(mode="python")
    kept: dict[Path, object] = {
        path: value for path, value in wanted.items() if current[str(path[0])][str(path[1])] != value
    }
    return kept | _model_changes(answers, settings, data)


def _model_changes(answers: Answers, settings: Settings, data: Mapping[str, Any]) -> dict[Path, object]:
    written = (data.get("llm") or {}).get("endpoints")
    if answers.no_model:
        return {("llm", "endpoints"): []} if settings.llm.endpoints else {}
    given = {"base_url": answers.base_url, "model": answers.model, "api_key_file": answers.api_key_file}
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        return {}
    if not written:
        name = "local" if settings.llm.endpoints else "model"
        return {("llm", "endpoints"): [{"name": name, **values}]}
    before = settings.llm.endpoints[0]
    if answers.base_url is not None and urlsplit(answers.base_url).netloc != urlsplit(before.base_url).netloc:
        values.setdefault("api_key_file", "")  # a key is meant for one server
    kept: dict[Path, object] = {
        ("llm", "endpoints", 0, name): value for name, value in values.items() if getattr(before, name) != value
    }
    if "api_key_file" in values and before.api_key.get_secret_value():
        kept["llm", "endpoints", 0, "api_key"] = ""  # it would win over the file, or go to another server
    return kept


def with_admin(admins: list[str], node: str, key: str) -> list[str]:
    """``access.admins`` with a node and its key; an older entry for the same node gives way."""
    return [*(entry for entry in admins if entry.partition(" ")[0] != node), f"{node} {key}"]
