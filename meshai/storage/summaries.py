"""Summaries: the version chain (docs/memory.md §2.1).

``base_id`` is what a node was made from, ``replaces_id`` the version it betters, ``parent_id`` the node that took its
place; active means completed without a parent.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from meshai.storage.database import Queries, Row, Transaction

Status = Literal["processing", "completed", "failed", "superseded"]
Quality = Literal["llm", "extractive", "merged"]

ACTIVE = "status = 'completed' AND parent_id IS NULL"
"""SQL: the node stands in the prompt of its epoch."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A row of ``summaries``."""

    id: int
    conv_id: int
    epoch: int
    level: int
    start_seq: int
    end_seq: int
    text: str
    base_id: int | None
    replaces_id: int | None
    parent_id: int | None
    status: Status
    quality: Quality
    strategy: str
    version: int
    attempts: int
    not_before: float | None
    lease_until: float | None
    boot_id: str
    model: str
    prompt_rev: int
    src_count: int
    src_tokens: int
    tokens: int
    retention: float | None
    generation_ms: int | None
    error: str
    created_at: float
    completed_at: float | None


@dataclass(frozen=True, slots=True)
class Draft:
    """What a new node is going to be."""

    conv_id: int
    epoch: int
    level: int
    start_seq: int
    end_seq: int
    base_id: int | None = None
    replaces_id: int | None = None
    strategy: str = ""
    version: int = 1


@dataclass(frozen=True, slots=True)
class Content:
    """What a finished node says."""

    text: str
    quality: Quality
    model: str = ""
    prompt_rev: int = 0
    src_count: int = 0
    src_tokens: int = 0
    tokens: int = 0
    retention: float | None = None
    generation_ms: int | None = None


_COLUMNS = ", ".join(field.name for field in fields(Summary))


async def get(q: Queries, summary_id: int) -> Summary | None:
    """The node with this id."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM summaries WHERE id = ?", (summary_id,))
    return _summary(row) if row else None


async def chain(q: Queries, conv_id: int, epoch: int) -> list[Summary]:
    """The active nodes of an epoch, oldest range first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM summaries WHERE conv_id = ? AND epoch = ? AND {ACTIVE} ORDER BY start_seq, id",
        (conv_id, epoch),
    )
    return [_summary(row) for row in rows]


async def children(q: Queries, summary_id: int) -> list[Summary]:
    """The nodes this one took the place of, oldest range first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM summaries WHERE parent_id = ? ORDER BY start_seq, id", (summary_id,)
    )
    return [_summary(row) for row in rows]


async def every(q: Queries, conv_id: int) -> list[Summary]:
    """All nodes of a conversation, in the order they were made."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM summaries WHERE conv_id = ? ORDER BY id", (conv_id,))
    return [_summary(row) for row in rows]


async def running(q: Queries, conv_id: int) -> Summary | None:
    """The node being made for a conversation; at most one (S1-13)."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM summaries WHERE conv_id = ? AND status = 'processing'", (conv_id,))
    return _summary(row) if row else None


async def failure(q: Queries, draft: Draft) -> Summary | None:
    """The failed attempt at a range, whose row the next attempt uses again."""
    row = await q.fetch_one(
        f"SELECT {_COLUMNS} FROM summaries WHERE conv_id = ? AND epoch = ? AND start_seq = ? AND level = ?"
        " AND replaces_id IS ? AND status = 'failed' ORDER BY id DESC LIMIT 1",
        (draft.conv_id, draft.epoch, draft.start_seq, draft.level, draft.replaces_id),
    )
    return _summary(row) if row else None


async def last_failure(q: Queries, conv_id: int) -> Summary | None:
    """The newest failed attempt of a conversation, for its status."""
    row = await q.fetch_one(
        f"SELECT {_COLUMNS} FROM summaries WHERE conv_id = ? AND status = 'failed' ORDER BY id DESC LIMIT 1",
        (conv_id,),
    )
    return _summary(row) if row else None


async def begin(tx: Transaction, draft: Draft, *, now: float, lease_s: float, boot_id: str) -> int:
    """Claim the conversation and insert the node as 'processing'; a failed attempt at the range is taken up again.

    Raises sqlite3.IntegrityError when another job of this conversation is running: the claim is a unique index.
    """
    old = await failure(tx, draft)
    if old is not None:
        await tx.execute(
            "UPDATE summaries SET status = 'processing', end_seq = ?, base_id = ?, strategy = ?, version = ?,"
            " lease_until = ?, boot_id = ?, error = '', created_at = ? WHERE id = ?",
            (draft.end_seq, draft.base_id, draft.strategy, draft.version, now + lease_s, boot_id, now, old.id),
        )
        return old.id
    return await _insert(tx, draft, "processing", now=now, lease_until=now + lease_s, boot_id=boot_id)


async def complete(tx: Transaction, summary_id: int, content: Content, *, now: float) -> None:
    """The node is done and active; its sources must have their parent by now."""
    await tx.execute(
        "UPDATE summaries SET status = 'completed', text = ?, quality = ?, model = ?, prompt_rev = ?, src_count = ?,"
        " src_tokens = ?, tokens = ?, retention = ?, generation_ms = ?, lease_until = NULL, not_before = NULL,"
        " attempts = 0, completed_at = ? WHERE id = ?",
        (
            content.text,
            content.quality,
            content.model,
            content.prompt_rev,
            content.src_count,
            content.src_tokens,
            content.tokens,
            content.retention,
            content.generation_ms,
            now,
            summary_id,
        ),
    )


async def insert_pending(tx: Transaction, draft: Draft, *, now: float) -> int:
    """A node that needs no job (a digest, an import): invisible to chain and claims until ``complete``."""
    return await _insert(tx, draft, "superseded", now=now)


async def fail(tx: Transaction, summary_id: int, *, error: str, attempts: int, not_before: float | None) -> None:
    """The attempt came to nothing; the next one may begin at ``not_before``."""
    await tx.execute(
        "UPDATE summaries SET status = 'failed', error = ?, attempts = ?, not_before = ?, lease_until = NULL"
        " WHERE id = ? AND status = 'processing'",
        (error[:200], attempts, not_before, summary_id),
    )


async def postpone(tx: Transaction, summary_id: int, not_before: float) -> None:
    """Do not try to better this node before a time."""
    await tx.execute("UPDATE summaries SET not_before = ? WHERE id = ?", (not_before, summary_id))


async def supersede(tx: Transaction, summary_id: int, reason: str = "") -> None:
    """Take a node out of the chain; its text stays for the audit."""
    await tx.execute(
        "UPDATE summaries SET status = 'superseded', lease_until = NULL, error = ? WHERE id = ?", (reason, summary_id)
    )


async def adopt(tx: Transaction, parent_id: int | None, ids: tuple[int, ...]) -> None:
    """Give nodes a parent; None makes them active again."""
    for child in ids:
        await tx.execute("UPDATE summaries SET parent_id = ? WHERE id = ?", (parent_id, child))


async def repair(tx: Transaction, boot_id: str, now: float) -> int:
    """Fail what a process that is gone left 'processing', and what outlived its lease (I5); returns how many."""
    return await tx.execute(
        "UPDATE summaries SET status = 'failed', error = 'interrupted', lease_until = NULL, not_before = NULL"
        " WHERE status = 'processing' AND (boot_id <> ? OR lease_until < ?)",
        (boot_id, now),
    )


async def _insert(
    tx: Transaction, draft: Draft, status: Status, *, now: float, lease_until: float | None = None, boot_id: str = ""
) -> int:
    return await tx.insert(
        "INSERT INTO summaries (conv_id, epoch, level, start_seq, end_seq, base_id, replaces_id, status, strategy,"
        " version, lease_until, boot_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            draft.conv_id,
            draft.epoch,
            draft.level,
            draft.start_seq,
            draft.end_seq,
            draft.base_id,
            draft.replaces_id,
            status,
            draft.strategy,
            draft.version,
            lease_until,
            boot_id,
            now,
        ),
    )


def _summary(row: Row) -> Summary:
    return Summary(**{name: row[name] for name in row.keys()})  # noqa: SIM118 - sqlite3.Row iterates over values
