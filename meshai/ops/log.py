"""The log: one stream, levels for the journal, no secrets, no foreign control characters.

What people write is logged at DEBUG only. The libraries' own logs stay at WARNING whatever ``log.level`` says:
meshtastic's DEBUG prints private keys, the HTTP libraries' DEBUG prints requests with their headers.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO, cast

from meshai.errors import MissingError

LIBRARIES = (
    "aiosqlite", "asyncio", "bleak", "httpcore2", "httpx2", "meshtastic", "openai", "pubsub", "urllib3", "uvicorn",
)  # fmt: skip
HIDDEN = "***"
FILE_BYTES = 1_000_000
OLD_FILES = 4
_PREFIX = ((logging.CRITICAL, "<2>"), (logging.ERROR, "<3>"), (logging.WARNING, "<4>"), (logging.INFO, "<6>"))
_KEYS = re.compile(r"\b(?:sk|pk|gsk|hf|xai)[-_][A-Za-z0-9_-]{16,}|(?<=Bearer )[A-Za-z0-9._~+/=-]{8,}")
_MIN_SECRET = 6
"""A shorter one (Ollama users write `x`) would black out ordinary words."""


def setup(
    level: str, *, secrets: Iterable[str] = (), stream: TextIO | None = None, env: Mapping[str, str] | None = None
) -> logging.Handler:
    """Send the log to ``stream`` (stderr); a second call replaces the first. ``level`` as in ``log.level``.

    Under systemd (``JOURNAL_STREAM`` is set and the stream is no terminal) every line begins with its ``<N>`` level.
    """
    stream = sys.stderr if stream is None else stream
    journal = bool((os.environ if env is None else env).get("JOURNAL_STREAM")) and not stream.isatty()
    handler = _Handler(stream)
    handler.setFormatter(_Formatter(secrets, journal=journal))
    root = logging.getLogger()
    for old in [other for other in root.handlers if isinstance(other, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    return handler


def to_file(path: Path, *, secrets: Iterable[str] = ()) -> logging.Handler:
    """Also write the log to a file, mode 0600, turned over at 1 MB with four older ones kept. Raises MissingError."""
    try:
        handler = _PrivateFile(path, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
    except OSError as error:
        raise MissingError(f"cannot write the log file {path}: {error.strerror or 'error'}") from None
    handler.setFormatter(_Formatter(secrets, journal=False))
    logging.getLogger().addHandler(handler)
    return handler


class _PrivateFile(RotatingFileHandler):
    """Every file it begins is for the owner only."""

    def _open(self) -> TextIOWrapper:
        def opener(name: str, flags: int) -> int:
            return os.open(name, flags, 0o600)

        return cast("TextIOWrapper", open(self.baseFilename, self.mode, encoding=self.encoding, opener=opener))


class LastErrors(logging.Handler):
    """Keeps the newest errors for ``status``."""

    def __init__(self, most: int = 10) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        self._kept: deque[tuple[float, str]] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's first line."""
        self._kept.append((record.created, self.format(record).splitlines()[0]))

    def listed(self) -> list[dict[str, object]]:
        """When and what, the oldest first; JSON types only."""
        return [{"at": at, "text": text} for at, text in self._kept]


def set_level(level: str) -> None:
    """Change the level while running (SIGHUP)."""
    logging.getLogger().setLevel(level.upper())
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


def formatter(secrets: Iterable[str] = ()) -> logging.Formatter:
    """Lines as ``setup`` writes them outside the journal, for another place that shows the log."""
    return _Formatter(secrets, journal=False)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be found again by a second ``setup``."""


class _Formatter(logging.Formatter):
    """One record, every line of it marked and cleaned."""

    def __init__(self, secrets: Iterable[str], *, journal: bool) -> None:
        # The journal has its own clock.
        super().__init__("%(name)s: %(message)s" if journal else "%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        self._journal = journal
        self._secrets = sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = self._clean(super().format(record)).split("\n")
        # A line break inside a message must not look like a record of its own.
        lines = [first, *(f"    {line}" for line in rest)]
        prefix = _prefix(record.levelno) if self._journal else ""
        return "\n".join(f"{prefix}{line}" for line in lines)

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        text = _KEYS.sub(HIDDEN, text)
        return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _prefix(level: int) -> str:
    return next((prefix for least, prefix in _PREFIX if level >= least), "<7>")


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
