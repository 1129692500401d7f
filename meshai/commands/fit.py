"""Making a command's answer fit one packet."""

from __future__ import annotations

from collections.abc import Sequence

from meshai.delivery.parts import size, take


def fit(text: str, max_bytes: int) -> str:
    """The text, cut with an ellipsis where it is too long; never inside a word or grapheme if it can be helped."""
    text = " ".join(text.split())
    if size(text) <= max_bytes:
        return text
    return text[: take(text, max_bytes - size("…"), fill=max_bytes)].rstrip() + "…"


def fit_list(entries: Sequence[str], max_bytes: int, *, separator: str = "; ") -> tuple[str, int]:
    """As many entries as fit, and how many those are; a first entry that is too long is cut."""
    text, count = "", 0
    for entry in entries:
        longer = f"{text}{separator}{entry}" if text else fit(entry, max_bytes)
        if size(longer) > max_bytes:
            break
        text, count = longer, count + 1
    return text, count
