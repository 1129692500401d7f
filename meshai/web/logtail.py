"""The last lines of the log, in RAM."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from meshai.ops.log import formatter

MOST_LINES = 500
MOST_CHARS = 2000
"""Of a record; a traceback's end is what matters, so its middle goes."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record as the log shows it, without secrets."""

    number: int
    level: str
    text: str


class LogTail(logging.Handler):
    """A handler on the root logger. Message texts are there only where the log has them: at level debug."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self.setFormatter(formatter(secrets))
        self._lines: deque[Line] = deque(maxlen=MOST_LINES)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record; called from any thread, under the handler's lock."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a broken format string must not break whoever logs it
            self.handleError(record)
            return
        if len(text) > MOST_CHARS:
            text = f"{text[: MOST_CHARS // 2]} … {text[-MOST_CHARS // 2 :]}"
        self.count += 1
        self._lines.append(Line(self.count, record.levelname.lower(), text))

    def lines(self, *, least: int = logging.NOTSET) -> list[Line]:
        """Newest first; ``least`` is a level of the logging module."""
        levels = logging.getLevelNamesMapping()
        return [line for line in reversed(self._lines.copy()) if levels.get(line.level.upper(), 0) >= least]
