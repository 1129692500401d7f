"""The running loop: woken by commits and events, not ended by failures."""

from __future__ import annotations

import asyncio

import pytest

from meshai.errors import DatabaseUnavailableError
from meshai.radio.link import LinkState

ANNA = "!0000a001"


@pytest.fixture
async def running(station, monkeypatch):
    """The sender as a task; time stands still, so only ``wake`` moves it unless a test lets it sleep."""
    naps: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def sleep(seconds):
        nap = asyncio.get_running_loop().create_future()
        naps.put_nowait(nap)
        await nap

    monkeypatch.setattr(station.clock, "sleep", sleep)
    station.naps = naps
    await station.sender.start()
    yield station
    await station.sender.stop()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_commit_wakes_the_sender(running):
    await running.naps.get()
    await running.say("Hi")
    await until(lambda: running.radio.texts == ["Hi"])


async def test_link_wakes_the_sender(running):
    running.radio.state = LinkState.DOWN
    await running.say("Hi")
    await running.naps.get()
    running.radio.state = LinkState.UP
    from meshai.radio.link import LinkChange

    running.sender.on_link(LinkChange(LinkState.UP))
    await until(lambda: running.radio.texts == ["Hi"])


async def test_unbooked_packet_is_booked_before_anything_else(station, monkeypatch, caplog):
    """The disk is full for a moment: the packet is not sent a second time."""
    transaction = station.db.transaction
    await station.say("Hi")

    async def refuse(body):
        raise DatabaseUnavailableError("disk full")

    monkeypatch.setattr(station.db, "transaction", refuse)
    for _ in range(3):
        with pytest.raises(DatabaseUnavailableError):
            await station.sender.step()
    monkeypatch.setattr(station.db, "transaction", transaction)
    await station.settle()
    assert station.radio.texts == ["Hi"]
    assert await station.states() == ["sent"]


async def test_storage_failure_is_waited_out(running, monkeypatch, caplog):
    transaction = running.db.transaction

    async def refuse(body):
        raise DatabaseUnavailableError("disk full")

    await running.say("Hi")
    await until(lambda: running.radio.texts == ["Hi"])
    monkeypatch.setattr(running.db, "transaction", refuse)
    running.receipt(running.radio.sent[0])
    await until(lambda: "disk full" in caplog.text)
    monkeypatch.setattr(running.db, "transaction", transaction)
    running.sender.wake()
    async with asyncio.timeout(10):
        while await running.states() != ["delivered"]:
            await asyncio.sleep(0.001)


async def test_bug_in_one_event_does_not_end_the_sending(running, monkeypatch, caplog):
    async def bug(receipt):
        raise ZeroDivisionError

    monkeypatch.setattr(running.sender, "_receipt", bug)
    await running.say("Hi")
    await until(lambda: running.radio.texts)
    running.receipt(running.radio.sent[0])
    await until(lambda: "sending failed" in caplog.text)
    before = running.sender.progress()
    running.clock.advance(3)
    await running.say("Ho", to="!0000b002")
    await until(lambda: running.radio.texts == ["Hi", "Ho"])
    await until(lambda: running.sender.progress() > before)
