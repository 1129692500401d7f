"""While nothing can be stored the bot keeps answering, and recovers by itself (docs/memory.md §2.7, I13, I14)."""

import asyncio

import pytest

from meshai.errors import DatabaseUnavailableError


@pytest.fixture
def refuse(station, monkeypatch):
    """``refuse(True)``: the disk is full; ``refuse(False)``: it is not."""
    real = station.db.transaction

    async def full(body):
        raise DatabaseUnavailableError("database or disk is full")

    def switch(on):
        monkeypatch.setattr(station.db, "transaction", full if on else real)

    return switch


async def hand_in(station, text, **more):
    from support.inbox_world import dm

    station.daemon.reception.sink(dm(text, packet_id=next(station._ids), **more))
    for _ in range(200):
        await asyncio.sleep(0.01)
        if not station.daemon.unsaved._tasks and station.daemon.reception.stalled_s() == 0.0:
            break
    await asyncio.sleep(0.05)


async def test_full_disk_answers_end_with_not_saved(station, refuse):
    await station.dm("My name is Zoe.")
    refuse(True)
    await hand_in(station, "What is my name?")
    assert station.texts()[-1] == "Answer 2. (not saved)"
    assert any("My name is Zoe." in m.content for m in station.prompt().all)


async def test_what_was_said_meanwhile_is_in_the_next_prompt_and_stored_afterwards(station, refuse, caplog):
    refuse(True)
    await hand_in(station, "My camp is at NUGGET1.")
    await hand_in(station, "Where is my camp?")
    assert any("NUGGET1" in m.content for m in station.prompt().all[:-1])
    assert caplog.text.count("nothing can be stored") == 1
    refuse(False)
    assert await station.daemon.memory.flush()
    assert await station.db.fetch_value("SELECT count(*) FROM messages WHERE content LIKE '%NUGGET1%'") == 1


@pytest.mark.parametrize("known", [True, False])
async def test_next_message_stores_what_was_held_in_front_of_itself(station, refuse, known):  # S3-26
    if known:
        await station.dm("hello")
    refuse(True)
    await hand_in(station, "My camp is at NUGGET1.")
    refuse(False)
    await station.dm("Where is my camp?")
    rows = await station.db.fetch_all("SELECT conv_id, content FROM messages WHERE role = 'user' ORDER BY seq")
    assert [row["content"] for row in rows][-2:] == ["My camp is at NUGGET1.", "Where is my camp?"]
    assert len({row["conv_id"] for row in rows}) == 1
    assert any("NUGGET1" in m.content for m in station.prompt().all[:-1])
    assert station.daemon.memory.unsaved == 0


async def test_what_is_held_is_stored_at_a_stop(station, refuse):
    refuse(True)
    await hand_in(station, "My camp is at NUGGET1.")
    refuse(False)
    await station.daemon.reception.stop()
    assert await station.db.fetch_value("SELECT count(*) FROM messages WHERE content LIKE '%NUGGET1%'") == 1


async def test_long_answer_stays_one_packet(station, refuse):
    station.model.replies = ["This sentence tells something about the mesh and its radios. " * 12]
    refuse(True)
    await hand_in(station, "Tell me everything")
    assert len(station.texts()) == 1
    assert len(station.texts()[0].encode()) <= 200
    assert station.texts()[0].endswith("… (not saved)")


async def test_reading_commands_work_and_others_say_why_not(station, refuse):
    await station.dm("hello")
    refuse(True)
    await hand_in(station, "!ping")
    await hand_in(station, "!reset")
    assert station.texts()[-2].startswith("pong: heard you")
    assert station.texts()[-1].startswith("I cannot do that now")


async def test_same_packet_twice_is_answered_once(station, refuse):
    refuse(True)
    for _ in range(2):
        station._ids = iter([77])
        await hand_in(station, "hello?")
    assert len(station.texts()) == 1


async def test_unauthenticated_dm_stays_unanswered(station, refuse):
    refuse(True)
    await hand_in(station, "hello?", key=None)
    assert station.texts() == []
