"""Text from the mesh and from models on the operator's terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line, no terminal escapes: others choose this text."""
    return "".join(char if char.isprintable() else " " for char in text)
