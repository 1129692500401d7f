"""Copies: consistent while somebody writes, checked, private, never half there; and back again."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from meshai.errors import (
    DatabaseCorruptError,
    DatabaseNewerError,
    DatabaseUnavailableError,
    MissingError,
    UsageError,
)
from meshai.storage import backup, database, recover, restore

INSERT = "INSERT INTO blocks (node_id, reason, created_at) VALUES (?, ?, 0)"


def build(path: Path, rows: int = 3) -> Path:
    database.prepare(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(INSERT, [(f"!{n:08x}", "x" * 200) for n in range(rows)])
    return path


def damage(path: Path) -> None:
    """Overwrite a page in the middle: the header stays."""
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 4096 // 2 * 4096
    raw[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(bytes(raw))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_copy_has_every_row_and_is_private(tmp_path: Path) -> None:
    source = build(tmp_path / "a.db")
    facts = backup.copy(source, tmp_path / "copy")
    assert facts.rows["blocks"] == 3
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert backup.inspect(tmp_path / "copy") == facts
    assert names(tmp_path) == {"a.db", "copy"}


def test_copy_holds_what_is_only_in_the_log_yet(tmp_path: Path) -> None:
    source = build(tmp_path / "a.db")
    with closing(sqlite3.connect(source)) as daemon:
        daemon.execute(INSERT, ("!ffffffff", "late"))
        daemon.commit()
        daemon.execute(INSERT, ("!fffffffe", "not committed"))
        assert backup.copy(source, tmp_path / "copy").rows["blocks"] == 4


def test_copy_is_of_one_moment_while_somebody_writes(tmp_path: Path) -> None:
    """Pairs of rows are committed together: a copy with half a pair would be torn."""
    source = build(tmp_path / "a.db", rows=4000)
    ended = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(source, timeout=10)) as daemon:
            number = 100_000
            while not ended.is_set():
                with daemon:
                    daemon.executemany(INSERT, [(f"!{number:08x}", ""), (f"!{number + 1:08x}", "")])
                number += 2

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [backup.copy(source, tmp_path / f"copy{n}").rows["blocks"] for n in range(4)]
    finally:
        ended.set()
        writer.join()
    assert all(count % 2 == 0 for count in found)
    assert found == sorted(found)


def test_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    source, target = build(tmp_path / "a.db"), tmp_path / "copy"
    target.write_text("precious")
    with pytest.raises(UsageError, match="--force"):
        backup.copy(source, target)
    assert target.read_text() == "precious"
    assert backup.copy(source, target, overwrite=True).rows["blocks"] == 3
    assert target.stat().st_mode & 0o777 == 0o600


def test_damaged_database_leaves_no_copy(tmp_path: Path) -> None:
    source = build(tmp_path / "a.db", rows=2000)
    damage(source)
    with pytest.raises(DatabaseCorruptError, match="damaged"):
        backup.copy(source, tmp_path / "copy")
    assert names(tmp_path) == {"a.db"}


def test_full_disk_is_told_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = build(tmp_path / "a.db")
    monkeypatch.setattr(backup.shutil, "disk_usage", lambda _path: backup.shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(DatabaseUnavailableError, match="not enough room"):
        backup.copy(source, tmp_path / "copy")


@pytest.mark.parametrize("target", ["no/such/folder/copy", "a.db/copy"])
def test_impossible_target_is_a_sentence(tmp_path: Path, target: str) -> None:
    with pytest.raises(MissingError, match="cannot"):
        backup.copy(build(tmp_path / "a.db"), tmp_path / target)


def test_missing_database_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="there is no"):
        backup.copy(tmp_path / "a.db", tmp_path / "copy")


def test_restore_puts_the_present_database_aside(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    backup.copy(build(tmp_path / "b.db", rows=5), copy)
    path = build(tmp_path / "a.db", rows=1)
    facts, aside = restore.restore(copy, path, now=0.0)
    assert facts.rows["blocks"] == backup.inspect(path).rows["blocks"] == 5
    assert aside == tmp_path / "a.db.replaced-19700101-000000"
    assert backup.inspect(aside).rows["blocks"] == 1
    assert recover.automatic_copies(path) == [aside]


def test_restore_does_not_play_an_old_log_into_the_copy(tmp_path: Path) -> None:
    """A daemon that was killed leaves a log; with the new file it would be garbage."""
    copy = tmp_path / "copy"
    backup.copy(build(tmp_path / "b.db", rows=5), copy)
    path = build(tmp_path / "a.db", rows=1)
    with closing(sqlite3.connect(path)) as killed:
        killed.execute(INSERT, ("!ffffffff", "late"))
        killed.commit()
        _, aside = restore.restore(copy, path, now=0.0)
    assert aside is not None
    assert backup.inspect(path).rows["blocks"] == 5


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (a)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(build(path))) as db:
        db.execute("PRAGMA user_version = 99")


def broken(path: Path) -> None:
    build(path, rows=2000)
    damage(path)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (foreign, UsageError),
        (newer, DatabaseNewerError),
        (broken, DatabaseCorruptError),
        (lambda path: path.write_bytes(b"no database" * 99), DatabaseCorruptError),
        (lambda path: None, MissingError),
    ],
)
def test_restore_of_rubbish_changes_nothing(tmp_path: Path, make, error) -> None:
    path = build(tmp_path / "a.db", rows=2)
    make(tmp_path / "copy")
    before = names(tmp_path)
    with pytest.raises(error):
        restore.restore(tmp_path / "copy", path, now=0.0)
    assert backup.inspect(path).rows["blocks"] == 2
    assert names(tmp_path) == before


async def test_damaged_database_is_replaced_by_the_newest_good_copy(tmp_path: Path) -> None:
    path = build(tmp_path / "a.db", rows=2000)
    good, bad = recover.daily_name(path, 1e9), recover.daily_name(path, 2e9)
    backup.copy(path, good)
    backup.copy(path, bad)
    damage(bad)
    damage(path)
    db, aside, copy = opened = await recover.open_or_replace(path, now=0.0)
    assert await db.fetch_value("SELECT count(*) FROM blocks") == 2000
    await db.close()
    assert copy == good
    assert aside is not None
    assert aside.exists()
    assert good.exists(), "a copy stays a copy"
    assert str(aside) in opened.note
    assert good.name in opened.note
