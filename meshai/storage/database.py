"""One SQLite file: a writer connection, a reader connection, and the only way to write.

WAL with ``synchronous=FULL``: a mesh brings a message every few seconds, so durability is free.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from meshai.errors import DatabaseCorruptError, DatabaseNewerError, DatabaseUnavailableError, StorageError
from meshai.storage.migrations import SCHEMA_VERSION, migrate

log = logging.getLogger(__name__)

T = TypeVar("T")
Value = str | int | float | bytes | None
Params = Sequence[Value]
Row = sqlite3.Row

BUSY_TIMEOUT_MS = 5000
CHECK_BELOW_BYTES = 64 * 1024 * 1024  # a larger file's integrity check would delay the start for seconds


class Queries:
    """Reading from one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def fetch_all(self, sql: str, params: Params = ()) -> list[Row]:
        """Every row."""
        with _translated():
            return list(await self._connection.execute_fetchall(sql, params))

    async def fetch_one(self, sql: str, params: Params = ()) -> Row | None:
        """The first row, None when there is none."""
        rows = await self.fetch_all(sql, params)
        return rows[0] if rows else None

    async def fetch_value(self, sql: str, params: Params = ()) -> Any:  # noqa: ANN401 - a column has any type
        """The first column of the first row, None when there is none."""
        row = await self.fetch_one(sql, params)
        return row[0] if row else None


class Reader(Queries):
    """A connection of one's own that can only read: long reads on it hold up nobody else's."""

    @classmethod
    async def open(cls, path: Path) -> Reader:
        """Open a database that exists and is migrated."""
        with _translated():
            connection = await _connect(path)
            await connection.execute("PRAGMA query_only = ON")
        return cls(connection)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


class Transaction(Queries):
    """A transaction in progress; all or nothing."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        super().__init__(connection)
        self._after_commit: list[Callable[[], None]] = []

    async def execute(self, sql: str, params: Params = ()) -> int:
        """Run one statement; returns the number of rows it changed."""
        with _translated():
            # Not closed: a finished statement holds nothing, and closing is one more way to the thread and back.
            return (await self._connection.execute(sql, params)).rowcount

    async def insert(self, sql: str, params: Params = ()) -> int:
        """Run one INSERT; returns the new row's id."""
        with _translated():
            return (await self._connection.execute(sql, params)).lastrowid or 0

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the loop once the commit has succeeded; never after a rollback."""
        self._after_commit.append(call)


class Database(Queries):
    """The open database. Reads see committed data only; writes go through ``transaction``."""

    def __init__(self, path: Path, writer: aiosqlite.Connection, reader: aiosqlite.Connection) -> None:
        super().__init__(reader)
        self.path = path
        self._writer = writer
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(cls, path: Path) -> Database:
        """Create or migrate the file and open it.

        Raises DatabaseNewerError, DatabaseCorruptError or DatabaseUnavailableError with a sentence for the operator.
        """
        await asyncio.to_thread(prepare, path)
        with _translated():
            writer = await _connect(path)
            reader = await _connect(path)
            await reader.execute("PRAGMA query_only = ON")
        return cls(path, writer, reader)

    async def transaction(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``body`` alone, in one IMMEDIATE transaction, and commit.

        Cancelling the caller does not cancel a transaction that has begun. ``body`` awaits nothing but the
        transaction it is given: no model, no radio, no other transaction.
        """
        task = asyncio.get_running_loop().create_task(self._run(body))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Finish running transactions and close both connections."""
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        await self._connection.close()
        await self._writer.close()

    async def checkpoint(self) -> bool:
        """Move the log into the file and truncate it; False while another process is reading an old state of it."""
        async with self._lock:
            with _translated():
                rows = list(await self._writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)"))
        return bool(rows[0][0] == 0)

    async def _run(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._lock:
            try:
                tx, result = await self._once(body)
            except (DatabaseCorruptError, sqlite3.IntegrityError) as error:
                if not _may_be_the_index(error) or not await self._repaired_index():
                    raise
                tx, result = await self._once(body)
        for call in tx._after_commit:  # noqa: SLF001 - same module
            call()
        return result

    async def _once(self, body: Callable[[Transaction], Awaitable[T]]) -> tuple[Transaction, T]:
        tx = Transaction(self._writer)
        await tx.execute("BEGIN IMMEDIATE")
        try:
            result = await body(tx)
            await tx.execute("COMMIT")
        except BaseException:  # whatever it was, including cancellation at shutdown: nothing half-done stays
            await self._rollback()
            raise
        return tx, result

    async def _repaired_index(self) -> bool:
        """A broken search index makes every insert fail: then it is rebuilt, and the transaction tried once more."""
        from meshai.storage import search_index

        try:
            _, broken = await self._once(search_index.repair)
        except (StorageError, sqlite3.Error):
            return False
        return bool(broken)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """The caller has the error unless it was cancelled: then nobody is left to hear of it."""
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a transaction ended with %r", task.exception())

    async def _rollback(self) -> None:
        if self._writer.in_transaction:
            await self._writer.execute("ROLLBACK")


def _may_be_the_index(error: Exception) -> bool:
    """A rule of a table names it ("UNIQUE constraint failed: messages.seq"), one inside a broken index does not."""
    return isinstance(error, DatabaseCorruptError) or str(error) == "constraint failed"


def prepare(path: Path) -> None:
    """Create, check and migrate the file; blocking."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DatabaseUnavailableError(f"cannot create {path.parent}: {error.strerror}") from error
    with _translated(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise DatabaseNewerError(
                f"{path} was written by a newer MeshAI (schema {version}, this program knows {SCHEMA_VERSION}): "
                "update the program, or use another storage.database"
            )
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        if version < SCHEMA_VERSION:
            if version > 0:
                _copy_before_migration(connection, path, version)
            migrate(connection)
    path.chmod(0o600)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size > CHECK_BELOW_BYTES:
        return
    result: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise DatabaseCorruptError(f"{path} is damaged: {result.splitlines()[-1]}")


def _copy_before_migration(connection: sqlite3.Connection, path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.before-v{version + 1}")
    copy.unlink(missing_ok=True)
    connection.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)
    log.info("copied the database to %s before migrating it", copy)


async def _connect(path: Path) -> aiosqlite.Connection:
    connection = await aiosqlite.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "foreign_keys = ON",
        "synchronous = FULL",
        "secure_delete = ON",
    ):
        await connection.execute(f"PRAGMA {pragma}")
    return connection


class _translated:  # noqa: N801 - reads as a phrase at its uses
    """Turns sqlite3's errors into ours."""

    def __init__(self, path: Path | None = None) -> None:
        self._place = f"{path}: " if path else ""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, sqlite3.OperationalError) and "_fts" in str(error):
            raise DatabaseCorruptError(f"{self._place}{error}") from error
        if isinstance(error, sqlite3.OperationalError):
            raise DatabaseUnavailableError(f"{self._place}{error}") from error
        if isinstance(error, sqlite3.IntegrityError):
            return  # the caller's own rule was broken: it knows what to do
        if isinstance(error, sqlite3.DatabaseError):
            raise DatabaseCorruptError(f"{self._place}{error}") from error
        if isinstance(error, ValueError) and ("no active connection" in str(error) or "closed" in str(error)):
            raise StorageError("the database is closed") from error


Body = Callable[[Transaction], Coroutine[Any, Any, T]]
