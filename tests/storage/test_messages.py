from __future__ import annotations

from meshai.storage import conversations, messages
from meshai.storage.conversations import Conversation
from meshai.storage.database import Database, Transaction

NODE = "!a1b2c3d4"


async def start(db: Database, key: str = "dm:!a1b2c3d4", kind: str = "dm") -> Conversation:
    async def body(tx: Transaction) -> Conversation:
        return await conversations.get_or_create(tx, key, kind=kind, node_id=NODE, now=1.0)  # type: ignore[arg-type]

    return await db.transaction(body)


async def say(db: Database, conv_id: int, text: str, **more: object) -> messages.StoredMessage:
    async def body(tx: Transaction) -> messages.StoredMessage:
        options = {"role": "user", "now": 2.0} | more
        return await messages.append(tx, conv_id, content=text, **options)  # type: ignore[arg-type]

    return await db.transaction(body)


async def test_sequence_numbers_have_no_gaps(db: Database) -> None:
    conv = await start(db)
    rows = [await say(db, conv.id, f"m{n}") for n in range(3)]
    assert [row.seq for row in rows] == [0, 1, 2]
    assert (await conversations.load(db, conv.id)).next_seq == 3


async def test_counts_talk_of_this_epoch_only(db: Database) -> None:
    conv = await start(db)
    await say(db, conv.id, "before")
    await db.transaction(lambda tx: conversations.new_epoch(tx, conv.id))
    await say(db, conv.id, "hello")
    await say(db, conv.id, "hi", role="assistant")
    await say(db, conv.id, "!ping", is_command=True)
    await say(db, conv.id, "model down", role="notice")
    assert await messages.count_epoch(db, conv.id) == 2


async def test_window_skips_commands_and_notices(db: Database) -> None:
    conv = await start(db)
    for text, more in (("a", {}), ("!help", {"is_command": True}), ("n", {"role": "notice"}), ("b", {})):
        await say(db, conv.id, text, **more)
    assert [m.content for m in await messages.newest(db, conv.id, 0, limit=10)] == ["a", "b"]
    assert [m.content for m in await messages.newest(db, conv.id, 0, limit=1)] == ["b"]
    assert [m.content for m in await messages.between(db, conv.id, 0, 2)] == ["a"]
    assert len(await messages.page(db, conv.id)) == 4


async def test_packet_found_inside_its_hour_only(db: Database) -> None:
    conv = await start(db)
    row = await say(db, conv.id, "once", sender=NODE, packet_id=7, now=1000.0)
    assert await messages.by_packet(db, NODE, 7, since=500.0) == row
    assert await messages.by_packet(db, NODE, 7, since=1500.0) is None


async def test_lone_surrogate_is_stored_as_question_mark(db: Database) -> None:
    conv = await start(db)
    row = await say(db, conv.id, "a\ud800b")
    assert (await messages.get(db, row.id)) == row
    assert row.content == "a?b"


async def test_continued_answer_is_one_message_and_found(db: Database) -> None:
    conv = await start(db)
    row = await say(db, conv.id, "The pass is", role="assistant")
    await db.transaction(lambda tx: messages.extend(tx, row.id, " closed in winter"))
    stored = await messages.get(db, row.id)
    assert stored is not None
    assert stored.content == "The pass is closed in winter"
    assert await db.fetch_value("SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'winter'") == row.id
    await db.transaction(lambda tx: tx.execute("INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')"))


async def test_channel_has_memory_off(db: Database) -> None:
    assert (await start(db)).memory_enabled
    assert not (await start(db, conversations.channel_key("bot"), "channel")).memory_enabled


async def test_second_key_has_a_conversation_of_its_own() -> None:
    assert conversations.dm_key(NODE) == "dm:!a1b2c3d4"
    assert conversations.dm_key(NODE, bytes(32), second=True) == "dm:!a1b2c3d4#66687aad"


async def test_anchor_moves_only_from_where_it_was(db: Database) -> None:
    conv = await start(db)
    assert await db.transaction(lambda tx: conversations.move_anchor(tx, conv.id, epoch=0, old=0, new=4))
    assert not await db.transaction(lambda tx: conversations.move_anchor(tx, conv.id, epoch=0, old=0, new=6))
    assert not await db.transaction(lambda tx: conversations.move_anchor(tx, conv.id, epoch=1, old=4, new=6))
    assert (await conversations.load(db, conv.id)).anchor_seq == 4
