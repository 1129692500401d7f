"""A QR code out of half blocks, for any terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

QUIET = 4
"""Light modules around the code (ISO/IEC 18004); scanners need them."""
_ON, _OFF = "\x1b[38;5;16;48;5;231m", "\x1b[0m"
"""Black on white, by number: the sixteen basic colours are whatever the terminal's theme makes of them."""


def half_blocks(text: str, *, colour: bool) -> str:
    """``text`` as a QR code, two modules a character.

    With ``colour`` it is black on white on dark and light terminals alike. Without, for files and dumb terminals, the
    dark modules are drawn in the terminal's text colour.
    """
    on, off = (_ON, _OFF) if colour else ("", "")
    return "\n".join(f"{on}{line}{off}" for line in _lines(matrix(text)))


def matrix(text: str) -> list[list[bool]]:
    """The modules, True for dark, with the quiet zone around them."""
    import segno

    code = segno.make(text, error="l", micro=False, boost_error=False)  # small: it must fit on a terminal
    size = len(code.matrix) + 2 * QUIET
    light = [False] * size
    edge = [False] * QUIET
    rows = [[*edge, *map(bool, row), *edge] for row in code.matrix]
    return [light] * QUIET + rows + [light] * QUIET


def _lines(rows: Sequence[Sequence[bool]]) -> Iterator[str]:
    blank = [False] * len(rows[0])
    for number in range(0, len(rows), 2):
        upper, lower = rows[number], rows[number + 1] if number + 1 < len(rows) else blank
        yield "".join(" ▄▀█"[2 * up + down] for up, down in zip(upper, lower, strict=True))
