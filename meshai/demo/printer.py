"""A conversation on the air as a person wants to read it: plain text, colours only on a terminal."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Mapping
from typing import TextIO

WIDTH = 100
INDENT = 18
NAME = 8
KEEP = frozenset("\u200c\u200d\n")
"""Joiners belong to scripts and emoji."""
PLAIN = str.maketrans({"✓": "+", "✗": "x", "…": ".", "—": "-", "·": "-", "⚠": "!"})
COLOURS = {"bot": "36;1", "person": "33;1", "dim": "2", "good": "32", "bad": "31;1", "heading": "1"}


class Printer:
    """Prints lines. ``write`` takes finished text; ``colour`` and ``encoding`` say what the reader can show."""

    def __init__(
        self, write: Callable[[str], object], *, colour: bool = False, encoding: str = "utf-8", width: int = WIDTH
    ) -> None:
        self._write = write
        self._colour = colour
        self._encoding = encoding
        self._width = max(40, width)

    @classmethod
    def on(cls, stream: TextIO, env: Mapping[str, str], *, width: int = WIDTH) -> Printer:
        """A printer on a stream; colours only on a terminal without ``NO_COLOR``."""

        def write(text: str) -> None:
            stream.write(text + "\n")
            stream.flush()

        return cls(write, colour=wants_colour(stream, env), encoding=stream.encoding or "utf-8", width=width)

    def heading(self, text: str) -> None:
        """What comes now."""
        self.line()
        self._say(text, "heading")

    def line(self, text: str = "") -> None:
        """A paragraph of ours, wrapped."""
        for row in textwrap.wrap(clean(text), self._width, subsequent_indent="  ") or [""]:
            self._say(row)

    def said(self, at_s: float, who: str, text: str, *, is_bot: bool) -> None:
        """Somebody's message at a time of the mesh; the text is foreign."""
        name = f"{clean(who)[:NAME]:<{NAME}}"
        rows = self._wrapped(text)
        self._write(self._shown(f" {clock(at_s):>6}  ") + self._styled(name, "bot" if is_bot else "person") + " "
                    + self._shown(rows[0]))  # fmt: skip
        for row in rows[1:]:
            self._say(" " * INDENT + row)

    def detail(self, text: str, style: str = "dim") -> None:
        """A fact below a message: receipts, hops, airtime."""
        for row in self._wrapped(text):
            self._say(" " * INDENT + row, style)

    def _wrapped(self, text: str) -> list[str]:
        room = self._width - INDENT
        rows = [row for line in clean(text).split("\n") for row in (textwrap.wrap(line, room) or [""])]
        return rows or [""]

    def _say(self, text: str, style: str = "") -> None:
        self._write(self._styled(text, style))

    def _styled(self, text: str, style: str) -> str:
        shown = self._shown(text)
        return f"\x1b[{COLOURS[style]}m{shown}\x1b[0m" if self._colour and style else shown

    def _shown(self, text: str) -> str:
        """What the reader's character set can hold; a lone surrogate never gets through."""
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            text = text.translate(PLAIN).encode(self._encoding, "replace").decode(self._encoding, "replace")
        return text


def wants_colour(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal whose owner does not mind (no-color.org)."""
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM", "") != "dumb"


def clean(text: str) -> str:
    """Foreign text without what could steer a terminal: no escapes, no control, no bidi characters."""
    return "".join(char if char in KEEP or _is_harmless(char) else "?" for char in text)


def clock(seconds: float) -> str:
    """Minutes and seconds of the mesh."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _is_harmless(char: str) -> bool:
    return char == " " or unicodedata.category(char)[0] not in "CZ" or char == "\u00a0"
