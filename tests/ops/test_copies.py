"""The daily copy: when, how many, and what `!forget all` leaves of them."""

import sqlite3
from contextlib import closing

import pytest

from meshai.memory import erase
from meshai.ops.copies import DailyCopies
from meshai.storage import backup, recover
from meshai.storage.database import Database, prepare

DAY = 86_400.0
NOON = 1_800_000_000.0


class HandClock:
    """Time that moves only when somebody sleeps; ends the sleeper after a while."""

    def __init__(self, now=NOON, until=0.0):
        self.time, self.until = now, until

    def now(self):
        return self.time

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds
        if self.time > self.until:
            raise StopAsyncIteration


@pytest.fixture
def path(tmp_path):
    prepare(tmp_path / "meshai.db")
    return tmp_path / "meshai.db"


async def run_until(path, clock, keep=7):
    copies = DailyCopies(path, clock, keep=lambda: keep)
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await copies.run()
    return copies


async def test_one_copy_a_day_and_the_oldest_go(path):
    await run_until(path, HandClock(until=NOON + 5.5 * DAY), keep=3)
    stamps = [copy.name.rpartition("daily-")[2][:8] for copy in recover.daily_copies(path)]
    assert stamps == ["20270120", "20270119", "20270118"]


async def test_restart_makes_no_second_copy_of_the_day(path):
    for start in (NOON, NOON + 3600.0):
        await run_until(path, HandClock(start, until=start + 2000.0))
    assert len(recover.daily_copies(path)) == 1


async def test_zero_means_none(path):
    await run_until(path, HandClock(until=NOON + DAY), keep=0)
    assert recover.daily_copies(path) == []


async def test_clock_that_was_never_set_makes_no_copy(path):
    """A Pi without a battery clock starts in the past."""
    await run_until(path, HandClock(1000.0, until=1000.0 + DAY))
    assert recover.daily_copies(path) == []


async def test_copy_from_the_future_does_not_stop_the_copies(path):
    backup.copy(path, recover.daily_name(path, NOON + 900 * DAY))
    await run_until(path, HandClock(until=NOON + 2000.0))
    assert len(recover.daily_copies(path)) == 2


def test_damaged_database_keeps_the_good_copies(path, caplog):
    copies = DailyCopies(path, HandClock(), keep=lambda: 1)
    first = copies.make()
    raw = bytearray(path.read_bytes())
    raw[4096 * 10 : 4096 * 12] = b"\x5a" * 8192
    path.write_bytes(bytes(raw))
    assert copies.make() is None
    assert copies.make() is None
    assert recover.daily_copies(path) == [first]
    assert "damaged" in copies.problem
    assert len(caplog.records) == 1, "said once"


async def test_forget_all_removes_the_copies(path):
    copies = DailyCopies(path, HandClock(), keep=lambda: 7)
    copies.make()
    path.with_name(f"{path.name}.daily-20270101-000000.partial").write_text("half")
    db = await Database.open(path)
    assert await erase.finish(db)
    await db.close()
    assert recover.automatic_copies(path) == []


def test_copy_being_written_while_erasing_does_not_survive(path, monkeypatch):
    """The file is removed under the copier: it must not come back under its final name."""
    real = backup._write

    def write(source, partial, go_on):
        facts = real(source, partial, go_on)
        erase._remove_copies(path)
        return facts

    monkeypatch.setattr(backup, "_write", write)
    assert DailyCopies(path, HandClock(), keep=lambda: 7).make() is None
    assert recover.automatic_copies(path) == []


def test_copies_are_databases_anybody_can_open(path):
    copy = DailyCopies(path, HandClock(), keep=lambda: 7).make()
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)


async def test_end_of_the_program_gives_a_copy_up(path, caplog):
    copies = DailyCopies(path, HandClock(), keep=lambda: 7)
    copies._ended = True
    assert copies.make() is None
    assert "given up" in copies.problem
    assert recover.automatic_copies(path) == []


async def test_what_a_power_cut_left_is_removed(path):
    path.with_name(f"{path.name}.daily-20270101-000000.partial").write_text("half")
    await run_until(path, HandClock(until=NOON))
    assert recover.automatic_copies(path) == []
