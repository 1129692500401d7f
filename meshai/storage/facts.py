"""Facts about a person: append-only, superseded instead of changed; docs/memory.md §2.5."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from meshai.storage.database import Queries, Row, Transaction

Kind = Literal["preference", "decision", "fact", "url", "entity", "structure", "custom"]
Origin = Literal["regex", "llm", "user"]

MOST_ACTIVE = 50
"""Active facts of a conversation; the least used give way."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of ``facts``; active while ``invalid_at`` is None."""

    id: int
    conv_id: int
    epoch: int
    subject: str
    kind: Kind
    key: str
    value: str
    quote: str
    source_msg_id: int
    origin: Origin
    pinned: bool
    valid_from: float
    invalid_at: float | None
    superseded_by: int | None
    hash: str
    last_used: float | None
    created_at: float


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to be stored. ``single``: a newer value of its key takes the place of the older one."""

    kind: Kind
    key: str
    value: str
    hash: str
    source_msg_id: int
    origin: Origin
    said_at: float
    quote: str = ""
    subject: str = ""
    pinned: bool = False
    single: bool = False


_COLUMNS = ", ".join(field.name for field in fields(Fact))


async def current(q: Queries, conv_id: int) -> list[Fact]:
    """What is known now: this epoch's facts and what was asked to be remembered, in the order they were learned."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM current_facts WHERE conv_id = ? ORDER BY id", (conv_id,))
    return [_fact(row) for row in rows]


async def current_with_seq(q: Queries, conv_id: int) -> list[tuple[Fact, int, bool]]:
    """``current`` with the sequence number of each fact's source, and whether that is a command."""
    columns = ", ".join(f"f.{field.name}" for field in fields(Fact))
    rows = await q.fetch_all(
        f"SELECT {columns}, m.seq AS source_seq, m.is_command AS from_command FROM current_facts f"
        " JOIN messages m ON m.id = f.source_msg_id WHERE f.conv_id = ? ORDER BY f.id",
        (conv_id,),
    )
    return [(_fact(row), int(row["source_seq"]), bool(row["from_command"])) for row in rows]


async def superseded(q: Queries, conv_id: int) -> list[tuple[Fact, Fact]]:
    """What held before and what took its place, in this epoch or pinned; newest change first."""
    columns = ", ".join(f"{side}.{field.name} AS {side}_{field.name}" for side in ("f", "n") for field in fields(Fact))
    rows = await q.fetch_all(
        f"SELECT {columns} FROM facts f JOIN facts n ON n.id = f.superseded_by WHERE f.conv_id = ?"
        " AND (f.origin = 'user' OR f.epoch = (SELECT epoch FROM conversations WHERE id = f.conv_id))"
        " ORDER BY f.invalid_at DESC, f.id DESC LIMIT 100",
        (conv_id,),
    )
    return [(_fact(row, "f_"), _fact(row, "n_")) for row in rows]


async def get(q: Queries, fact_id: int) -> Fact | None:
    """The fact with this id."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM facts WHERE id = ?", (fact_id,))
    return _fact(row) if row else None


async def every(q: Queries, conv_id: int) -> list[Fact]:
    """All facts of a conversation, past ones too."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM facts WHERE conv_id = ? ORDER BY id", (conv_id,))
    return [_fact(row) for row in rows]


async def add(tx: Transaction, conv_id: int, epoch: int, new: NewFact, *, now: float) -> int | None:
    """Store a fact; None when it is known, was forgotten, or an answer of today's is newer than it.

    A single-valued key's older value becomes invalid in the same transaction; beyond 50 the least used gives way.
    """
    if await _is_known(tx, conv_id, epoch, new):
        return None
    older: list[Fact] = []
    if new.single:
        older = await _same_key(tx, conv_id, epoch, new)
        if any(fact.source_msg_id > new.source_msg_id for fact in older):
            return None
    fact_id = await tx.insert(
        "INSERT INTO facts (conv_id, epoch, subject, kind, key, value, quote, source_msg_id, origin, pinned,"
        " valid_from, hash, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            conv_id,
            epoch,
            new.subject,
            new.kind,
            new.key,
            new.value,
            new.quote,
            new.source_msg_id,
            new.origin,
            int(new.pinned),
            new.said_at,
            new.hash,
            now,
        ),
    )
    for fact in older:
        await tx.execute("UPDATE facts SET invalid_at = ?, superseded_by = ? WHERE id = ?", (now, fact_id, fact.id))
    dropped = await _make_room(tx, conv_id, now)
    if older or dropped:  # the facts in the prompt's prefix have changed
        await tx.execute("UPDATE conversations SET prefix_rev = prefix_rev + 1 WHERE id = ?", (conv_id,))
    return fact_id


async def invalidate(tx: Transaction, fact_id: int, *, now: float) -> None:
    """A person took it back: it is not shown again, nor learned again from the same message."""
    await tx.execute("UPDATE facts SET invalid_at = ? WHERE id = ? AND invalid_at IS NULL", (now, fact_id))


async def end_epoch(tx: Transaction, conv_id: int, *, now: float) -> None:
    """All facts go but those a person asked to be remembered (DESIGN §4.3)."""
    await tx.execute(
        "UPDATE facts SET invalid_at = ? WHERE conv_id = ? AND invalid_at IS NULL AND origin <> 'user'", (now, conv_id)
    )


async def used(tx: Transaction, fact_ids: list[int], *, now: float) -> None:
    """These were talked about: they stay longer."""
    for fact_id in fact_ids:
        await tx.execute("UPDATE facts SET last_used = ? WHERE id = ?", (now, fact_id))


async def outdated_sources(q: Queries, message_ids: list[int]) -> set[int]:
    """Those of the messages that stated what does not hold any more, and nothing that does."""
    if not message_ids:
        return set()
    marks = ", ".join("?" * len(message_ids))
    rows = await q.fetch_all(
        f"SELECT source_msg_id FROM facts WHERE source_msg_id IN ({marks}) GROUP BY source_msg_id"
        " HAVING sum(superseded_by IS NOT NULL) > 0 AND sum(invalid_at IS NULL) = 0",
        message_ids,
    )
    return {int(row[0]) for row in rows}


async def _is_known(tx: Transaction, conv_id: int, epoch: int, new: NewFact) -> bool:
    row = await tx.fetch_one(
        "SELECT 1 FROM facts WHERE conv_id = ? AND hash = ?"
        " AND (invalid_at IS NULL OR (epoch = ? AND source_msg_id >= ?)) LIMIT 1",
        (conv_id, new.hash, epoch, new.source_msg_id),
    )
    return row is not None


async def _same_key(tx: Transaction, conv_id: int, epoch: int, new: NewFact) -> list[Fact]:
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM facts WHERE conv_id = ? AND key = ? AND subject = ? AND invalid_at IS NULL"
        " AND (origin = 'user' OR epoch = ?)",
        (conv_id, new.key, new.subject, epoch),
    )
    return [_fact(row) for row in rows]


async def _make_room(tx: Transaction, conv_id: int, now: float) -> int:
    return await tx.execute(
        "UPDATE facts SET invalid_at = ?1 WHERE id IN (SELECT id FROM facts WHERE conv_id = ?2 AND invalid_at IS NULL"
        " ORDER BY pinned DESC, coalesce(last_used, created_at) DESC, id DESC LIMIT -1 OFFSET ?3)",
        (now, conv_id, MOST_ACTIVE),
    )


def _fact(row: Row, prefix: str = "") -> Fact:
    values = {field.name: row[prefix + field.name] for field in fields(Fact)}
    values["pinned"] = bool(values["pinned"])
    return Fact(**values)
