"""Figures as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """The two largest units: "3d 4h", "5h 12m", "42s"."""
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    parts: list[str] = []
    rest = int(max(0.0, seconds))
    for name, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2]) or "0s"
