"""A database that is damaged is put aside; the newest good daily copy takes its place, else an empty one.

A bot without memory beats no bot, and one with yesterday's memory beats both.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import NamedTuple

from meshai.errors import DatabaseCorruptError, DatabaseUnavailableError, MeshAIError
from meshai.storage import backup
from meshai.storage.database import Database

log = logging.getLogger(__name__)

DAILY = "daily"
REPLACED = "replaced"
CORRUPT = "corrupt"


class Opened(NamedTuple):
    """An open database; where the damaged one is now, and the copy that took its place (None: neither)."""

    db: Database
    aside: Path | None = None
    copy: Path | None = None

    @property
    def note(self) -> str:
        """What the operator must know of it, "" when nothing happened."""
        if self.aside is None:
            return ""
        instead = f"the copy {self.copy.name} is used" if self.copy else "an empty one was begun"
        return f"the database was damaged and is kept as {self.aside}; {instead}"


async def open_or_replace(path: Path, *, now: float) -> Opened:
    """The database, restored from a copy when its file is damaged; the damaged file is kept.

    Raises DatabaseNewerError and DatabaseUnavailableError as ``Database.open`` does: those files are not touched.
    """
    try:
        return Opened(await Database.open(path))
    except DatabaseCorruptError as error:
        log.error("%s", error)  # noqa: TRY400 - a sentence for the operator, not a traceback
    try:
        aside = put_aside(path, now=now)
    except OSError as error:
        raise DatabaseUnavailableError(f"{path} is damaged and cannot be put aside: {error.strerror}") from None
    copy = await asyncio.to_thread(_restore_newest, path, aside)
    opened = Opened(await Database.open(path), aside, copy)
    log.error("%s", opened.note)
    return opened


def put_aside(path: Path, *, now: float, why: str = CORRUPT) -> Path:
    """Rename the file and its log; returns the new name."""
    aside = _free_name(path, why, now)
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        log_file = path.with_name(path.name + suffix)
        if log_file.exists():
            log_file.rename(aside.with_name(aside.name + suffix))
    return aside


def daily_copies(path: Path) -> list[Path]:
    """The finished automatic copies, the newest first."""
    found = path.parent.glob(f"{path.name}.{DAILY}-*")
    return sorted((copy for copy in found if not copy.name.endswith(backup.PARTIAL)), reverse=True)


def daily_name(path: Path, now: float) -> Path:
    """What a copy made now is called; names sort by time."""
    return path.with_name(f"{path.name}.{DAILY}-{_stamp(now)}")


def automatic_copies(path: Path) -> list[Path]:
    """Files this program made of the database by itself, unfinished ones included: ``!forget all`` removes them."""
    kinds = ("before-v", f"{CORRUPT}-", f"{REPLACED}-", f"{DAILY}-")
    return sorted(copy for kind in kinds for copy in path.parent.glob(f"{path.name}.{kind}*"))


def _restore_newest(path: Path, aside: Path) -> Path | None:
    """Copy the newest sound daily copy to ``path``; None when there is none."""
    for copy in daily_copies(path):
        try:
            backup.require_ours(copy, backup.inspect(copy))
            backup.copy(copy, path, owner=aside.stat())
        except MeshAIError as error:
            log.warning("the copy %s cannot be used: %s", copy.name, error)
        else:
            return copy
    return None


def _free_name(path: Path, why: str, now: float) -> Path:
    first = path.with_name(f"{path.name}.{why}-{_stamp(now)}")
    aside, count = first, 1
    while aside.exists():
        count += 1
        aside = first.with_name(f"{first.name}-{count}")
    return aside


def _stamp(now: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
