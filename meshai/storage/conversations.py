"""Conversations: one for a person (a public key) or a channel; docs/memory.md §2.1."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Literal

from meshai.errors import StorageError
from meshai.storage.database import Queries, Row, Transaction

Kind = Literal["dm", "channel"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A row of ``conversations``. Sequence numbers: raw messages are those with ``seq >= anchor_seq``."""

    id: int
    key: str
    kind: Kind
    node_id: str | None
    memory_enabled: bool
    compact_every: int | None
    epoch: int
    epoch_start_seq: int
    anchor_seq: int
    next_seq: int
    facts_upto_seq: int
    prefix_rev: int
    disclosed_at: float | None
    closed_at: float | None
    created_at: float
    last_active: float

    @property
    def scope(self) -> str:
        """The word every index row of the current epoch carries: ``c12e3``."""
        return f"c{self.id}e{self.epoch}"


_COLUMNS = ", ".join(field.name for field in fields(Conversation))


def dm_key(node_id: str, public_key: bytes | None = None, *, second: bool = False) -> str:
    """``dm:!a1b2c3d4``; the conversation of a node's ``second`` key gets ``#`` and 8 hex of the key's SHA-256."""
    if not second:
        return f"dm:{node_id}"
    if public_key is None:
        raise ValueError("a second conversation of a node belongs to a key")
    return f"dm:{node_id}#{hashlib.sha256(public_key).hexdigest()[:8]}"


def channel_key(name: str) -> str:
    """The key of a channel's conversation: ``ch:name``."""
    return f"ch:{name}"


async def get(q: Queries, conv_id: int) -> Conversation | None:
    """The conversation with this id."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM conversations WHERE id = ?", (conv_id,))
    return _conversation(row) if row else None


async def load(q: Queries, conv_id: int) -> Conversation:
    """The conversation with this id; StorageError when there is none (the caller got the id from the database)."""
    conversation = await get(q, conv_id)
    if conversation is None:
        raise StorageError(f"no conversation {conv_id}")
    return conversation


async def by_key(q: Queries, key: str) -> Conversation | None:
    """The conversation with this key."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM conversations WHERE key = ?", (key,))
    return _conversation(row) if row else None


async def of_node(q: Queries, node_id: str) -> list[Conversation]:
    """Every conversation of a node, oldest first; more than one when its key changed."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM conversations WHERE node_id = ? ORDER BY id", (node_id,))
    return [_conversation(row) for row in rows]


async def everyone(q: Queries) -> list[Conversation]:
    """Every conversation, oldest first."""
    return [_conversation(row) for row in await q.fetch_all(f"SELECT {_COLUMNS} FROM conversations ORDER BY id")]


async def get_or_create(tx: Transaction, key: str, *, kind: Kind, node_id: str | None, now: float) -> Conversation:
    """The conversation with this key, made if need be: memory is on for a DM, off for a channel (conflict 18)."""
    await tx.execute(
        "INSERT INTO conversations (key, kind, node_id, memory_enabled, created_at, last_active)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
        (key, kind, node_id, int(kind == "dm"), now, now),
    )
    conversation = await by_key(tx, key)
    assert conversation is not None
    return conversation


async def set_memory(tx: Transaction, conv_id: int, *, enabled: bool) -> None:
    """Switch memory on or off; the data stays (S3-23)."""
    await tx.execute("UPDATE conversations SET memory_enabled = ? WHERE id = ?", (int(enabled), conv_id))


async def set_compact_every(tx: Transaction, conv_id: int, turns: int | None) -> None:
    """This conversation's own trigger, 1..500 user turns; None: the configured one (S3-21)."""
    await tx.execute("UPDATE conversations SET compact_every = ? WHERE id = ?", (turns, conv_id))


async def set_disclosed(tx: Transaction, conv_id: int, now: float) -> None:
    """The first-contact line is on its way; it is not sent again."""
    await tx.execute("UPDATE conversations SET disclosed_at = ? WHERE id = ?", (now, conv_id))


async def close(tx: Transaction, conv_id: int, now: float) -> None:
    """Archive for good: its key was replaced (DESIGN §3 Identity)."""
    await tx.execute("UPDATE conversations SET closed_at = ? WHERE id = ?", (now, conv_id))


async def new_epoch(tx: Transaction, conv_id: int) -> None:
    """Start afresh after the last message: everything earlier is out of every prompt and search (conflict 6)."""
    await tx.execute(
        "UPDATE conversations SET epoch = epoch + 1, epoch_start_seq = next_seq, anchor_seq = next_seq,"
        " facts_upto_seq = next_seq, prefix_rev = prefix_rev + 1 WHERE id = ?",
        (conv_id,),
    )


async def move_anchor(tx: Transaction, conv_id: int, *, epoch: int, old: int, new: int) -> bool:
    """Compare-and-set of the first raw message; False when the conversation has moved on meanwhile."""
    changed = await tx.execute(
        "UPDATE conversations SET anchor_seq = ?, prefix_rev = prefix_rev + 1"
        " WHERE id = ? AND epoch = ? AND anchor_seq = ?",
        (new, conv_id, epoch, old),
    )
    return changed == 1


async def touch_prefix(tx: Transaction, conv_id: int) -> None:
    """What stands before the window has changed: the next prompt renders it anew."""
    await tx.execute("UPDATE conversations SET prefix_rev = prefix_rev + 1 WHERE id = ?", (conv_id,))


def _conversation(row: Row) -> Conversation:
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118 - sqlite3.Row iterates over values
    values["memory_enabled"] = bool(values["memory_enabled"])
    return Conversation(**values)
