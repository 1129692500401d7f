"""Copies of the database that can be trusted: consistent while the daemon writes, checked after writing.

Everything here blocks; the daemon calls it in a thread. A copy appears under its name only when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from meshai.errors import (
    DatabaseCorruptError,
    DatabaseNewerError,
    DatabaseUnavailableError,
    MissingError,
    UsageError,
)
from meshai.storage.migrations import SCHEMA_VERSION

PARTIAL = ".partial"
SPARE_BYTES = 16 * 1024 * 1024
"""What must stay free on the disk: the daemon goes on writing while a copy is made."""
OURS = ("conversations", "messages", "inbound", "outbound")
"""Tables without which a file is not a database of MeshAI (DESIGN §4.4)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is in a database file; ``rows`` by table, without those of the search indexes."""

    schema: int
    rows: dict[str, int]
    bytes: int

    @property
    def messages(self) -> int:
        """How many messages it has."""
        return self.rows.get("messages", 0)


def copy(
    source: Path,
    target: Path,
    *,
    overwrite: bool = False,
    owner: os.stat_result | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Facts:
    """Copy a database that may be in use to ``target``, mode 0600, and check the copy; what is in it.

    Everything committed when the copy begins is in it, nothing later. ``owner``: whom it is given to, if we may.
    ``go_on`` is asked again and again; once it says no the copy is given up, as DatabaseUnavailableError.
    Raises UsageError when the target exists, DatabaseCorruptError when the source is damaged, else
    DatabaseUnavailableError, MissingError. Nothing incomplete stays behind.
    """
    if not overwrite and os.path.lexists(target):
        raise UsageError(f"{target} is there already: choose another name, or add --force")
    _check_room(source, target)
    partial = target.with_name(f"{target.name}{PARTIAL}")
    try:
        _create_private(partial, owner)
        wanted = _write(source, partial, go_on)
        found = inspect(partial, go_on=go_on)
        if found.rows != wanted.rows or found.schema != wanted.schema:
            raise DatabaseUnavailableError(f"the copy of {source} has not the rows of the original; it was removed")
        _publish(partial, target, overwrite=overwrite)
    except OSError as error:
        raise MissingError(f"cannot write {target}: {error.strerror or 'error'}") from None
    finally:
        _remove(partial)
    return found


def inspect(path: Path, *, thorough: bool = True, go_on: Callable[[], bool] = lambda: True) -> Facts:
    """What is in a file; checks its structure unless not ``thorough``. Never writes to it.

    Raises MissingError when there is none or it may not be read, DatabaseNewerError, DatabaseCorruptError.
    """
    with _reading(path) as connection:
        connection.set_progress_handler(lambda: not go_on(), 1_000_000)  # instructions of its machine: milliseconds
        if thorough:
            result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if result != "ok":
                raise DatabaseCorruptError(f"{path} is damaged: {result.splitlines()[-1]}")
        return _facts(connection, path)


def require_ours(path: Path, facts: Facts) -> None:
    """Raise UsageError when a sound SQLite file is of some other program."""
    missing = [table for table in OURS if table not in facts.rows]
    if missing:
        raise UsageError(f"{path} is not a database of MeshAI: it has no table {missing[0]}")


def _write(source: Path, partial: Path, go_on: Callable[[], bool]) -> Facts:
    """Copy all pages in one snapshot; what the source had in it."""
    with _reading(source) as reader, closing(sqlite3.connect(partial, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = OFF")  # an incomplete copy is thrown away, never rolled back
        writer.execute("PRAGMA synchronous = OFF")  # it is synced once, below
        reader.execute("BEGIN")  # counts and pages of the same moment
        facts = _facts(reader, source)
        reader.backup(writer, pages=1024, progress=_checked(go_on))
        writer.execute("PRAGMA journal_mode = DELETE")  # one file: a copy has no log beside it
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    return facts


def _checked(go_on: Callable[[], bool]) -> Callable[[int, int, int], None]:
    def progress(_status: int, _remaining: int, _total: int) -> None:
        if not go_on():
            raise DatabaseUnavailableError("the copy was given up")

    return progress


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing, with errors as ours.

    Not opened read-only: SQLite would leave its log files behind when it is the last to close them.
    """
    if not os.access(path, os.R_OK):
        gone = not os.path.lexists(path) and os.access(path.parent, os.X_OK)
        raise MissingError(
            f"there is no {path}" if gone else f"no permission to read {path}: try again with sudo, or as its owner"
        )
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as found:
            found.execute("PRAGMA query_only = ON")
            found.execute("PRAGMA busy_timeout = 5000")
            yield found
    except sqlite3.OperationalError as error:
        raise DatabaseUnavailableError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DatabaseCorruptError(f"{path} is damaged: {error}") from error


def _facts(connection: sqlite3.Connection, path: Path) -> Facts:
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if schema > SCHEMA_VERSION:
        raise DatabaseNewerError(
            f"{path} was written by a newer MeshAI (schema {schema}, this program knows {SCHEMA_VERSION})"
        )
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%\\_fts%' ESCAPE '\\'"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    rows = {name: int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for (name,) in names}
    pages, size = (int(connection.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_count", "page_size"))
    return Facts(schema, rows, pages * size)


def _check_room(source: Path, target: Path) -> None:
    """Refuse at once what would fill the disk under the daemon."""
    try:
        need = source.stat().st_size + SPARE_BYTES
        free = shutil.disk_usage(target.absolute().parent).free
    except FileNotFoundError:
        return  # told better by whoever opens it
    except OSError as error:
        raise MissingError(f"cannot use {target}: {error.strerror or 'error'}: try again with sudo") from None
    if free < need:
        raise DatabaseUnavailableError(
            f"not enough room for {target}: {need // 1_000_000 + 1} MB are needed, {free // 1_000_000} MB are free"
        )


def _create_private(path: Path, owner: os.stat_result | None) -> None:
    """An empty file for the owner only, whatever the umask says."""
    _remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        if owner is not None and os.geteuid() == 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


def _publish(partial: Path, target: Path, *, overwrite: bool) -> None:
    """Give the finished copy its name, for good also after a power cut."""
    if overwrite:
        partial.replace(target)
    else:
        _rename_new(partial, target)
    descriptor = os.open(target.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_new(partial: Path, target: Path) -> None:
    """Rename, but never onto a file that appeared meanwhile."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise UsageError(f"{target} is there already: choose another name, or add --force") from None
    except PermissionError:  # FAT sticks have no links
        partial.rename(target)
        return
    partial.unlink(missing_ok=True)


def _remove(partial: Path) -> None:
    for path in (partial, partial.with_name(f"{partial.name}-journal")):
        with contextlib.suppress(OSError):
            path.unlink()
