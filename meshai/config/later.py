"""Settings that are accepted but not used yet. When a feature lands, delete its line here: nothing else refers to it.

A key stands for everything below it, ``key=value`` for that value only. The example file and ``config check`` show
the notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NOT_YET = "accepted, not used yet"

LATER: Mapping[str, str] = {
    "knowledge": NOT_YET,
}


def note(key: str, value: object = None) -> str:
    """The note for a key, empty when there is none."""
    parts = key.split(".")
    candidates = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return next((LATER[candidate] for candidate in (*candidates, f"{key}={value}") if candidate in LATER), "")


def notes(given: Iterable[tuple[str, object]]) -> tuple[str, ...]:
    """One line per note: ``accepted, not used yet: web.port, web.token``."""
    keys: dict[str, list[str]] = {}
    for key, value in given:
        if text := note(key, value):
            keys.setdefault(text, []).append(key)
    return tuple(f"{text}: {', '.join(sorted(names))}" for text, names in keys.items())
