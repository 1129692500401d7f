"""A copy in place of the database, while no daemon runs. Blocking; the caller holds the database's lock."""

from __future__ import annotations

import os
from pathlib import Path

from meshai.errors import MissingError, UsageError
from meshai.storage import backup, recover


def restore(copy: Path, database: Path, *, now: float) -> tuple[backup.Facts, Path | None]:
    """Check ``copy`` and put it in the place of ``database``; what is in it, and where the one before is now.

    The new file is whole and checked before the old one is touched. Raises DatabaseCorruptError,
    DatabaseNewerError, UsageError or MissingError with everything as it was.
    """
    if os.path.realpath(copy) == os.path.realpath(database):
        raise UsageError(f"{copy} is the database itself: name a copy")
    backup.require_ours(copy, backup.inspect(copy))
    fresh = database.with_name(f"{database.name}.{recover.REPLACED}-by")
    try:
        owner = database.stat() if database.exists() else database.parent.stat()
        facts = backup.copy(copy, fresh, overwrite=True, owner=owner)
        aside = recover.put_aside(database, now=now, why=recover.REPLACED) if database.exists() else None
        for suffix in ("-wal", "-shm"):  # a log without its database would be played into the new one
            database.with_name(database.name + suffix).unlink(missing_ok=True)
        fresh.rename(database)
    except OSError as error:
        raise MissingError(f"cannot replace {database}: {error.strerror or 'error'}") from None
    finally:
        fresh.unlink(missing_ok=True)
    return facts, aside
