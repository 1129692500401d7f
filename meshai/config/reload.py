"""What a SIGHUP can change while the daemon runs, and what waits for a restart.

A key belongs to the longest entry of ``RELOADABLE`` or ``FIXED`` that it begins with; what neither names is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from meshai.config.model import Settings

RELOADABLE = frozenset(
    {
        "access",
        "airtime",
        "bot",
        "channels",
        "limits",
        "llm.max_tokens",
        "llm.temperature",
        "log.level",
        "reply",
        "storage.daily_copies",
    }
)
FIXED = frozenset({"access.favourite"})


@dataclass(frozen=True, slots=True)
class Reload:
    """``settings`` are the ones to use from now on: the new values of ``applied``, the old ones of ``restart``."""

    settings: Settings
    applied: tuple[str, ...]
    restart: tuple[str, ...]


def compare(old: Settings, new: Settings) -> Reload:
    """Take over what can be taken over now. Values are never part of the answer: some are secrets."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = [key for key in after if before[key] != after[key]]
    applied = tuple(key for key in changed if is_reloadable(key))
    restart = tuple(key for key in changed if not is_reloadable(key))
    return Reload(_with(old, new, frozenset(applied)), applied, restart)


def is_reloadable(key: str) -> bool:
    """Whether a change of this key applies without a restart."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in FIXED or prefix in RELOADABLE:
            return prefix in RELOADABLE
    return False


def _leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _with(old: Settings, new: Settings, keys: frozenset[str]) -> Settings:
    values: dict[str, Any] = {}
    for key in keys:
        section, _, name = key.partition(".")
        if name:
            values.setdefault(section, {})[name] = getattr(getattr(new, section), name)
        else:
            values[section] = getattr(new, section)
    sections = {
        name: getattr(old, name).model_copy(update=value) if isinstance(value, dict) else value
        for name, value in values.items()
    }
    return old.model_copy(update=sections)
