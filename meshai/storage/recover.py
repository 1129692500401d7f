"""A database that is damaged is put aside and a fresh one begun: a bot without memory beats no bot."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from meshai.errors import DatabaseCorruptError
from meshai.storage.database import Database

log = logging.getLogger(__name__)


async def open_or_replace(path: Path, *, now: float) -> tuple[Database, Path | None]:
    """The database, and where the damaged one is now (None: it was sound).

    Raises DatabaseNewerError and DatabaseUnavailableError as ``Database.open`` does: those files are not touched.
    """
    try:
        return await Database.open(path), None
    except DatabaseCorruptError as error:
        aside = put_aside(path, now=now)
        log.error(  # noqa: TRY400 - a sentence for the operator, not a traceback
            "%s; it is kept as %s and an empty database is used from now on", error, aside
        )
    return await Database.open(path), aside


def put_aside(path: Path, *, now: float) -> Path:
    """Rename the file and its log; returns the new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{count}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        log_file = path.with_name(path.name + suffix)
        if log_file.exists():
            log_file.rename(aside.with_name(aside.name + suffix))
    return aside


def automatic_copies(path: Path) -> list[Path]:
    """Files this program made of the database by itself."""
    return sorted([*path.parent.glob(f"{path.name}.before-v*"), *path.parent.glob(f"{path.name}.corrupt-*")])
