"""Every query the source designs print, in SQLite's form, against the views with their names (docs/memory.md §6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshai.errors import StorageError
from meshai.storage import conversations, facts, messages, summaries
from meshai.storage.database import Database, Transaction
from meshai.storage.facts import NewFact
from meshai.storage.summaries import Content, Draft

KEY = "dm:!a1b2c3d4"


@pytest.fixture
async def filled(db: Database) -> Database:
    """S1's table after three versions, one of them replaced, and one job running."""

    async def body(tx: Transaction) -> None:
        conv = await conversations.get_or_create(tx, KEY, kind="dm", node_id="!a1b2c3d4", now=1e9)
        rows = []
        for n in range(20):
            role: Any = "assistant" if n % 2 else "user"
            rows.append(await messages.append(tx, conv.id, role=role, content=f"text {n}", now=1e9 + n))
        base = None
        for start, end in ((0, 5), (0, 9), (2, 15)):
            draft = Draft(conv.id, 0, 1, start, end, base_id=base, strategy="sliding", version=end)
            node = await summaries.insert_pending(tx, draft, now=1e9 + 60 * end)
            if base is not None:
                await summaries.adopt(tx, node, (base,))
            content = Content(f"summary to {end}", "llm", generation_ms=1000 + end, src_count=end - start + 1)
            await summaries.complete(tx, node, content, now=1e9 + 60 * end)
            base = node
        await conversations.move_anchor(tx, conv.id, epoch=0, old=0, new=16)
        await summaries.begin(tx, Draft(conv.id, 0, 1, 16, 19), now=1e9, lease_s=600, boot_id="b")
        for kind, key, value in (
            ("preference", "theme", "dark"), ("decision", "meet", "at nine"), ("fact", "", "X causes Y"),
            ("url", "", "https://example.com"), ("structure", "sections", "Intro, Methods"), ("entity", "", "Hut 7"),
            ("custom", "", "anything"),
        ):  # fmt: skip
            new = NewFact(kind, key, value, f"h{kind}", rows[0].id, "llm", 1e9)  # type: ignore[arg-type]
            await facts.add(tx, conv.id, 0, new, now=1e9)

    await db.transaction(body)
    return db


async def test_s0_summaries(filled: Database) -> None:
    rows = await filled.fetch_all(
        "SELECT user_id, summary, message_count, updated_at FROM conversation_summaries ORDER BY updated_at DESC"
    )
    assert [tuple(row) for row in rows] == [("!a1b2c3d4", "summary to 15", 16, 1e9 + 900)]
    row = await filled.fetch_one(
        "SELECT summary, message_count, updated_at FROM conversation_summaries WHERE user_id = ?", ("!a1b2c3d4",)
    )
    assert row is not None


async def test_s0_history(filled: Database) -> None:
    rows = await filled.fetch_all(
        "SELECT id, user_id, role, content, timestamp FROM message_archive WHERE user_id = ? ORDER BY timestamp",
        ("!a1b2c3d4",),
    )
    assert len(rows) == 20


async def test_s1_latest_completed(filled: Database) -> None:
    row = await filled.fetch_one(
        "SELECT * FROM memory WHERE conversation_id = ? AND status = 'completed' ORDER BY end_sequence DESC LIMIT 1",
        (KEY,),
    )
    assert row is not None
    assert (row["memory_text"], row["start_sequence"], row["end_sequence"]) == ("summary to 15", 2, 15)


async def test_s1_chain_history(filled: Database) -> None:
    rows = await filled.fetch_all(
        "SELECT m.*, b.end_sequence AS base_end_seq FROM memory m LEFT JOIN memory b ON m.base_memory_id = b.memory_id"
        " WHERE m.conversation_id = ? ORDER BY m.end_sequence DESC",
        (KEY,),
    )
    assert [row["base_end_seq"] for row in rows] == [None, 9, 5, None]


async def test_s1_stuck_tasks(filled: Database) -> None:
    rows = await filled.fetch_all(
        "SELECT conversation_id, memory_id, created_at, julianday('now') - julianday(created_at) AS age FROM memory"
        " WHERE status = 'processing' AND created_at < datetime('now', '-5 minutes')"
    )
    assert [row["conversation_id"] for row in rows] == [KEY]


async def test_s1_window_progression(filled: Database) -> None:
    rows = await filled.fetch_all(
        "SELECT conversation_id, start_sequence, end_sequence, end_sequence - start_sequence + 1 AS window_size,"
        " generation_time_ms FROM memory WHERE status = 'completed' ORDER BY created_at DESC LIMIT 20"
    )
    assert [row["window_size"] for row in rows] == [14, 10, 6]


async def test_s1_average_time(filled: Database) -> None:
    row = await filled.fetch_one(
        "SELECT AVG(generation_time_ms) AS avg_ms, MAX(generation_time_ms) AS max_ms, COUNT(*) AS total_summaries"
        " FROM memory WHERE status = 'completed' AND generation_time_ms IS NOT NULL"
    )
    assert row is not None
    assert (row["max_ms"], row["total_summaries"]) == (1015, 3)


async def test_s1_testing_query(filled: Database) -> None:
    rows = await filled.fetch_all(
        "SELECT memory_id, start_sequence, end_sequence, base_memory_id, status FROM memory"
        " WHERE conversation_id = ? ORDER BY memory_id",
        (KEY,),
    )
    assert [row["base_memory_id"] for row in rows] == [None, 1, 2, None]
    assert [row["status"] for row in rows] == ["completed"] * 3 + ["processing"]


async def test_s3_users_messages_and_summaries(filled: Database) -> None:
    user = await filled.fetch_one(
        "SELECT user_id, storage_type, summary_every_n, memory_enabled, created_at, updated_at FROM users"
    )
    assert user is not None
    assert tuple(user)[:4] == ("!a1b2c3d4", "sqlite", 10, 1)
    counts = await filled.fetch_all(
        "SELECT is_active, chunk_id, count(*) AS n FROM message_archive GROUP BY is_active, chunk_id ORDER BY 1, 2"
    )
    assert sum(row["n"] for row in counts if row["is_active"]) == 4
    assert all(row["chunk_id"] is not None for row in counts if not row["is_active"])
    nodes = await filled.fetch_all(
        "SELECT id, user_id, summary_text, created_at, level, source_chunk_ids, is_active FROM summary_archive"
        " ORDER BY id"
    )
    assert [row["is_active"] for row in nodes] == [0, 0, 1]
    assert json.loads(nodes[0]["source_chunk_ids"]) == [1]


async def test_s4_memory_compression(filled: Database) -> None:
    value = json.loads(await filled.fetch_value("SELECT memory_compression FROM memory_compression"))
    assert value["important_data"] == {
        "user_preferences": {"theme": "dark"},
        "key_decisions": ["at nine"],
        "important_facts": ["X causes Y"],
        "source_urls": ["https://example.com"],
        "document_structure": {"sections": "Intro, Methods"},
        "entities": ["Hut 7"],
        "custom_fields": {"7": "anything"},
    }
    assert value["conversation_summary"] == "summary to 15"
    assert (value["summary_version"], value["messages_summarized_count"]) == (15, 16)
    assert value["last_summarized_at"] == "2001-09-09T02:01:40Z"


@pytest.mark.parametrize("view", ["conversation_summaries", "memory", "users", "message_archive", "summary_archive"])
async def test_views_are_read_only(filled: Database, view: str) -> None:
    with pytest.raises(StorageError, match="view"):
        await filled.transaction(lambda tx: tx.execute(f"DELETE FROM {view}"))


async def test_s0_empty_conversation_has_no_summary(db: Database) -> None:
    await db.transaction(lambda tx: conversations.get_or_create(tx, KEY, kind="dm", node_id="!a1b2c3d4", now=1.0))
    assert await db.fetch_all("SELECT * FROM conversation_summaries") == []
    value = json.loads(await db.fetch_value("SELECT memory_compression FROM memory_compression"))
    assert value["summary_version"] == 0
    assert value["important_data"]["user_preferences"] == {}
