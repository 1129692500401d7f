"""What a check is, and what all of them are given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from meshai.config.loader import Loaded
from meshai.config.model import Settings
from meshai.ops import system

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``fix``: what to type or do, never empty for a failure."""

    name: str
    status: Status
    text: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.fix or self.status != "fail", f"{self.name}: a failure without its fix"

    def as_dict(self) -> dict[str, str]:
        """For --json."""
        return asdict(self)


def ok(name: str, text: str) -> Check:
    """All is well."""
    return Check(name, "ok", text)


def warn(name: str, text: str, fix: str = "") -> Check:
    """It works, but deserves a look."""
    return Check(name, "warn", text, fix)


def fail(name: str, text: str, fix: str) -> Check:
    """It does not work."""
    return Check(name, "fail", text, fix)


def skip(name: str, text: str, fix: str = "") -> Check:
    """It could not be looked at, or does not apply here."""
    return Check(name, "skip", text, fix)


@dataclass(slots=True)
class Context:
    """The installation that is looked at. ``root`` stands before /proc, /sys and /etc: tests give their own."""

    env: Mapping[str, str]
    loaded: Loaded | None  # None: the configuration has mistakes
    database: Path
    facts: Mapping[str, Any] | None = None  # what the running daemon says; None: it was not asked, or said nothing
    daemon_runs: bool = False
    root: Path = Path("/")
    ask: system.Ask = system.ask
    now: float = field(default_factory=time.time)
    leave_node: str = ""  # why the node must not be opened

    @property
    def settings(self) -> Settings:
        """The configuration; the defaults when it has mistakes."""
        return self.loaded.settings if self.loaded is not None else Settings()

    def at(self, path: str) -> Path:
        """Where a file of the system is."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        """A small file of the system, without surrounding white space; "" when it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
