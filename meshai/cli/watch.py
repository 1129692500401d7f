"""Redrawing a screenful of text in place, until Ctrl-C. Only what every terminal knows: tmux, screen, the console."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from meshai.errors import MeshAIError

EVERY_S = 2.0
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, TO_LINE_END, TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(
    ask: Callable[[], dict[str, Any]],
    render: Callable[[dict[str, Any]], str],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show ``render(ask())`` every two seconds; what goes wrong is shown in its place and tried again.

    In a terminal the picture is redrawn, elsewhere each one follows the last.
    """
    with contextlib.suppress(KeyboardInterrupt), _screen() as show:
        while True:
            try:
                text = render(ask())
            except MeshAIError as error:
                text = f"meshai: {error}"
            show(text)
            sleep(EVERY_S)


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[str], None]]:
    """How to show a text. A terminal gets back what it showed before."""
    out = sys.stdout
    if not out.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield lambda text: print(text, flush=True)  # noqa: T201 - this is the command line
        return
    out.write(ENTER)
    try:
        yield lambda text: _draw(text, *shutil.get_terminal_size())
    finally:
        out.write(LEAVE)
        out.flush()


def _draw(text: str, columns: int, lines: int) -> None:
    """Overwrite line by line: no flicker. What does not fit is left out, or the terminal would scroll."""
    shown = [line[:columns] for line in text.split("\n")]
    foot = f"{time.strftime('%H:%M:%S')}, again every {EVERY_S:g} s; Ctrl-C ends"[:columns]
    room = max(1, lines - 1)
    if len(shown) > room:
        shown = [*shown[: room - 1], f"... {len(shown) - room + 1} more lines"[:columns]]
    body = "".join(f"{line}{TO_LINE_END}\n" for line in [*shown, *[""] * (room - len(shown))])
    sys.stdout.write(f"{HOME}{body}{foot}{TO_SCREEN_END}")
    sys.stdout.flush()
