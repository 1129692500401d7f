"""When things break the bot keeps answering, loses nothing it accepted, and heals (docs/memory.md §2.7)."""

from __future__ import annotations

import logging
from typing import Any

from meshai.errors import DatabaseUnavailableError, ModelUnavailableError
from meshai.memory.buffer import MOST_MESSAGES
from meshai.memory.memory import Ask, Held
from meshai.storage import messages
from meshai.storage.database import Database

FULL = DatabaseUnavailableError("database or disk is full")


def held(one: Any, text: str, role: str = "user") -> Held:
    return Held(one.key, "dm", "!a1b2c3d4", role, text, one.clock.now(), sender="!a1b2c3d4")  # type: ignore[arg-type]


async def make_unwritable(one: Any) -> None:
    """SQLite itself refuses: the file may not grow any further."""
    pages = await one.db._writer.execute_fetchall("PRAGMA page_count")
    await one.db._writer.execute(f"PRAGMA max_page_count = {next(iter(pages))[0]}")


async def test_full_disk_is_bridged_in_ram_and_stored_later(chat: Any, caplog: Any) -> None:  # S3-26, I14
    one = await chat()
    await one.exchange("Hello")
    for n in range(3):
        one.memory.hold(held(one, f"unsaved {n}"), FULL)
    assert one.memory.unsaved == 3
    prompt = await one.memory.prompt(Ask(one.id, "P", (), "now?", key=one.key))
    assert "unsaved 2" in prompt.messages[-1].content
    assert await one.memory.flush()
    assert one.memory.unsaved == 0
    rows = await messages.page(one.db, one.id)
    assert [row.content for row in rows[-3:]] == ["unsaved 0", "unsaved 1", "unsaved 2"]
    complaints = [record for record in caplog.records if "nothing can be stored" in record.message]
    assert len(complaints) == 1


async def test_buffer_is_bounded(chat: Any) -> None:
    one = await chat()
    for n in range(MOST_MESSAGES * 3):
        one.memory.hold(held(one, f"m{n}"), FULL)
    assert one.memory.unsaved == MOST_MESSAGES


async def test_still_full_keeps_holding(chat: Any, monkeypatch: Any) -> None:
    one = await chat()
    await one.exchange("Hello")
    await make_unwritable(one)
    for n in range(40):
        one.memory.hold(held(one, f"word {n} " * 100), FULL)
    assert not await one.memory.flush()
    assert one.memory.unsaved == 40
    assert await one.memory.compact_now(one.id) in {
        "Could not compact: nothing can be stored right now.",
        "Nothing to compact: only 2 recent messages.",
    }
    await one.db._writer.execute("PRAGMA max_page_count = 1000000")
    assert await one.memory.flush()


async def test_unreadable_database_still_gives_a_prompt(chat: Any) -> None:  # S3-27
    one = await chat()
    await one.exchange("Hello")
    one.memory.hold(held(one, "I am at the pass"), FULL)
    await one.db.close()
    prompt = await one.memory.prompt(Ask(one.id, "P", (), "where am I?", key=one.key))
    assert "I am at the pass" in prompt.messages[-1].content


async def test_broken_index_heals_while_writing(chat: Any, caplog: Any) -> None:
    one = await chat()
    await one.exchange("The key is under the third stone")
    for damage in ("DROP TABLE messages_fts", "UPDATE messages_fts_data SET block = x'00'"):
        await one.db.transaction(lambda tx, damage=damage: tx.execute(damage))
        await one.exchange("Another message")
        assert [p for p in await one.memory.verify() if p.invariant == "I12"] == []
        assert await one.memory.recall(one.id, "third stone") != []
    assert "has been rebuilt" in caplog.text


async def test_broken_index_is_searched_around(chat: Any) -> None:
    one = await chat()
    await one.exchange("The key is under the third stone")
    await one.db.transaction(lambda tx: tx.execute("DROP TABLE messages_fts"))
    assert any("third stone" in hit.text for hit in await one.memory.recall(one.id, "where is the key stone?"))


async def test_housekeeping_rebuilds_a_short_index(chat: Any, db: Database) -> None:
    one = await chat()
    await one.exchange("Something to find")
    await db.transaction(lambda tx: tx.execute("DELETE FROM messages_fts_docsize"))
    await one.memory._keeper.once()
    assert await one.memory.verify() == []


async def test_model_down_for_a_long_time(chat: Any, clock: Any, caplog: Any) -> None:  # I13
    caplog.set_level(logging.INFO)
    one = await chat()
    one.model.always = ModelUnavailableError("down")
    for n in range(120):
        prompt = await one.exchange(f"Message {n} about Hut {n} with words", context=1024)
        assert prompt.tokens_est <= prompt.usable
        await one.memory.settle()
        clock.advance(30)
    assert await one.problems() == []
    one.model.always = None
    for _ in range(12):
        clock.advance(3700)
        one.memory.note_exchange(one.id)
        await one.memory.settle()
    status = await one.memory.status(one.id)
    assert status.extractive == 0  # I8
    assert await one.problems() == []


async def test_offline_answerer_is_never_asked_for_a_summary(chat: Any) -> None:
    one = await chat()
    one.model.offline = True
    await one.talk(40)
    assert one.model.requests == []
    assert (await one.memory.status(one.id)).extractive > 0
