"""The configuration as it is before the set-up, and what is around it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshai.config.document import parse
from meshai.config.example import example
from meshai.config.loader import find, load_settings
from meshai.config.model import Settings
from meshai.errors import MissingError, UsageError
from meshai.ops import control, paths


@dataclass(frozen=True, slots=True)
class Options:
    """What came from the command line; None: not given."""

    port: str | None = None
    host: str | None = None
    model_url: str | None = None
    model: str | None = None
    api_key_file: Path | None = None
    owner: str | None = None
    allow: str | None = None
    output: Path | None = None
    yes: bool = False
    no_wait: bool = False
    no_check: bool = False
    no_pki: bool = False


@dataclass(frozen=True, slots=True)
class Existing:
    """The file to write: its text so far (the example's when it is new), its values, and the daemon that uses it."""

    path: Path
    is_new: bool
    text: str
    settings: Settings
    data: Mapping[str, Any] = field(repr=False)
    daemon: Path | None = None  # the control socket of a running daemon


def look(output: Path | None, env: Mapping[str, str]) -> Existing:
    """Read what is there. Raises ConfigError with every mistake of a file that must be corrected first."""
    path = output.expanduser() if output is not None else find(None, env) or _default(env)
    text = _read(path)
    is_new = not text.strip()
    settings = Settings() if is_new else load_settings(path, {}).settings
    text = example() if is_new else text
    return Existing(path, is_new, text, settings, parse(text.encode("utf-8")).data, _daemon(path, settings, env))


def _default(env: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return paths.SERVICE_CONFIG
    home = env.get("HOME", "")
    if not home:
        raise UsageError("there is no home directory (HOME is not set): say where to write with --output FILE")
    return Path(home) / ".config" / "meshai" / "config.yaml"


def _read(path: Path) -> str:
    if path.is_dir():
        raise UsageError(f"{path} is a directory: --output wants a file in it")
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        raise MissingError(f"{path} cannot be read: {error.strerror or 'error'}") from None


def _daemon(path: Path, settings: Settings, env: Mapping[str, str]) -> Path | None:
    try:
        database = paths.find_database(settings.storage.database, path, env)
    except MissingError:
        return None
    socket = paths.find_control_socket(database, env)
    return socket if socket is not None and control.is_answered(socket) else None
