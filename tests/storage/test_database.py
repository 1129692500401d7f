"""The writer, the reader, and files that are missing, read-only, newer, full or corrupt."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from meshai.errors import DatabaseCorruptError, DatabaseNewerError, DatabaseUnavailableError, StorageError
from meshai.storage import migrations
from meshai.storage.database import Database, Transaction, prepare
from meshai.storage.recover import automatic_copies, open_or_replace


async def put(tx: Transaction, key: str = "k") -> None:
    await tx.execute("INSERT INTO meta (key, value) VALUES (?, 'v')", (key,))


async def test_new_file_is_private_and_durable(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "new" / "meshai.db")
    assert (tmp_path / "new" / "meshai.db").stat().st_mode & 0o777 == 0o600
    assert await db.fetch_value("PRAGMA journal_mode") == "wal"
    assert await db.transaction(lambda tx: tx.fetch_value("PRAGMA synchronous")) == 2
    assert await db.transaction(lambda tx: tx.fetch_value("PRAGMA foreign_keys")) == 1
    assert await db.transaction(lambda tx: tx.fetch_value("PRAGMA secure_delete")) == 1
    await db.close()


async def test_failed_body_leaves_nothing(db: Database) -> None:
    async def body(tx: Transaction) -> None:
        await put(tx)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await db.transaction(body)
    assert await db.fetch_value("SELECT count(*) FROM meta") == 0


async def test_cancelled_caller_does_not_cut_a_transaction(db: Database) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def body(tx: Transaction) -> None:
        await put(tx)
        started.set()
        await go.wait()
        await put(tx, "l")

    caller = asyncio.ensure_future(db.transaction(body))
    await started.wait()
    caller.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await db.transaction(lambda tx: put(tx, "m"))
    assert await db.fetch_value("SELECT count(*) FROM meta") == 3


async def test_transactions_run_one_after_the_other(db: Database) -> None:
    order: list[str] = []

    async def body(name: str) -> None:
        async def work(tx: Transaction) -> None:
            order.append(f"{name} in")
            await put(tx, name)
            order.append(f"{name} out")

        await db.transaction(work)

    await asyncio.gather(*(body(name) for name in "abc"))
    assert order == [f"{name} {way}" for name in "abc" for way in ("in", "out")]


async def test_after_commit_is_called_once_and_never_after_a_rollback(db: Database) -> None:
    called: list[str] = []

    async def good(tx: Transaction) -> None:
        tx.after_commit(lambda: called.append("good"))

    async def bad(tx: Transaction) -> None:
        tx.after_commit(lambda: called.append("bad"))
        raise RuntimeError

    await db.transaction(good)
    with pytest.raises(RuntimeError):
        await db.transaction(bad)
    assert called == ["good"]


async def test_reader_cannot_write_and_sees_committed_rows_only(db: Database) -> None:
    with pytest.raises(StorageError):
        await db.fetch_all("INSERT INTO meta VALUES ('a', 'b')")

    async def body(tx: Transaction) -> None:
        await put(tx)
        assert await db.fetch_value("SELECT count(*) FROM meta") == 0
        assert await tx.fetch_value("SELECT count(*) FROM meta") == 1

    await db.transaction(body)


async def test_close_waits_for_what_runs(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "a.db")
    work = asyncio.ensure_future(db.transaction(put))
    await asyncio.sleep(0)
    await db.close()
    await work
    with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
        assert raw.execute("SELECT count(*) FROM meta").fetchone() == (1,)


async def test_closed_database_says_so(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "a.db")
    await db.close()
    with pytest.raises(StorageError):
        await db.fetch_all("SELECT 1")


async def test_newer_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(DatabaseNewerError, match="newer MeshAI"):
        await Database.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database at all" * 50, b"SQLite format 3\x00" + b"\xff" * 4000])
async def test_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.db").write_bytes(content)
    with pytest.raises(DatabaseCorruptError):
        await Database.open(tmp_path / "a.db")


async def test_damaged_file_is_put_aside_for_a_fresh_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"nonsense" * 1000)
    db, aside, copy = await open_or_replace(path, now=0.0)
    assert aside == tmp_path / "a.db.corrupt-19700101-000000"
    assert aside.read_bytes() == b"nonsense" * 1000
    await db.transaction(put)
    await db.close()
    assert automatic_copies(path) == [aside]
    assert copy is None


async def test_sound_file_is_not_put_aside(tmp_path: Path) -> None:
    db, aside, _ = await open_or_replace(tmp_path / "a.db", now=0.0)
    await db.close()
    assert aside is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_read_only_folder_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DatabaseUnavailableError):
        await Database.open(tmp_path / "a.db")
    tmp_path.chmod(0o700)


async def test_unusable_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatabaseUnavailableError, match="cannot create"):
        await Database.open(tmp_path / "file" / "a.db")


async def test_full_disk_is_told_and_nothing_half_done_stays(db: Database) -> None:
    pages = await db.fetch_value("PRAGMA page_count")
    await db.transaction(put)
    await db._writer.execute(f"PRAGMA max_page_count = {pages}")

    async def much(tx: Transaction) -> None:
        for n in range(200):
            await tx.execute("INSERT INTO meta VALUES (?, ?)", (str(n), "x" * 1000))

    with pytest.raises(DatabaseUnavailableError, match="full"):
        await db.transaction(much)
    assert await db.fetch_value("SELECT count(*) FROM meta") == 1


async def test_two_writers_wait_for_each_other(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("meshai.storage.database.BUSY_TIMEOUT_MS", 50)
    db = await Database.open(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailableError, match="locked"):
            await db.transaction(put)
        other.execute("ROLLBACK")
    await db.transaction(put)
    await db.close()


# --- migrations ---


def old_database(path: Path) -> None:
    """Schema version 1 with data in it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        migrations.migrate(raw, target=1)
        raw.execute(
            "INSERT INTO conversations (key, kind, node_id, next_seq, anchor_seq, created_at, last_active)"
            " VALUES ('dm:!a1b2c3d4', 'dm', '!a1b2c3d4', 4, 2, 1, 2)"
        )
        for seq, role in enumerate(("user", "assistant", "user", "assistant")):
            raw.execute(
                "INSERT INTO messages (conv_id, seq, epoch, role, content, created_at) VALUES (1, ?, 0, ?, ?, 1e9)",
                (seq, role, f"walnut {seq}"),
            )
        raw.execute(
            "INSERT INTO summaries (conv_id, epoch, start_seq, end_seq, text, status, created_at, completed_at)"
            " VALUES (1, 0, 0, 1, 'They met.', 'completed', 1e9, 1e9)"
        )


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as raw:
        return [line for line in raw.iterdump() if "_fts" not in line]


async def test_version_1_with_data_is_migrated_and_copied_first(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    old_database(path)
    before = dump(path)
    db = await Database.open(path)
    assert await db.fetch_value("PRAGMA user_version") == migrations.SCHEMA_VERSION
    assert await db.fetch_value("SELECT summary FROM conversation_summaries") == "They met."
    assert await db.fetch_value("SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'walnut'") == 4
    await db.close()
    copy = tmp_path / "a.db.before-v2"
    assert dump(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("fail_at", [1, 5, 12])
def test_failed_migration_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: Any, fail_at: int) -> None:
    path = tmp_path / "a.db"
    old_database(path)
    before = dump(path)
    real = migrations.statements

    def broken(sql: str) -> list[str]:
        found = real(sql)
        found[fail_at : fail_at + 1] = ["SELECT no_such_function()"]
        return found

    monkeypatch.setattr(migrations, "statements", broken)
    with pytest.raises(StorageError):
        prepare(path)
    assert dump(path) == before


def test_newest_file_is_the_programs_version() -> None:
    assert migrations.migration_sql(migrations.SCHEMA_VERSION)
    with pytest.raises(LookupError):
        migrations.migration_sql(migrations.SCHEMA_VERSION + 1)


def test_statements_keep_triggers_whole() -> None:
    sql = "-- a; comment\nCREATE TABLE t (a);\nCREATE TRIGGER x AFTER INSERT ON t BEGIN\n SELECT 1;\n SELECT 2;\nEND;\n"
    assert len(migrations.statements(sql)) == 2
    with pytest.raises(ValueError, match="unfinished"):
        migrations.statements("SELECT 1")
