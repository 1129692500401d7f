"""Messages: the archive, append-only, the only truth (docs/memory.md P1).

A *talk* row is what a model may see: role ``user`` or ``assistant``, not a command. Commands and notices are
archived beside them and take sequence numbers of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from meshai.storage.database import Queries, Row, Transaction

Role = Literal["user", "assistant", "notice"]
Status = Literal["final", "undelivered", "failed"]

IS_TALK = "role <> 'notice' AND is_command = 0"
"""SQL: the row belongs to the conversation a model is shown."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row of ``messages``."""

    id: int
    conv_id: int
    seq: int
    epoch: int
    role: Role
    sender: str
    sender_name: str
    content: str
    created_at: float
    packet_id: int | None = None
    reply_to: int | None = None
    is_command: bool = False
    tokens_est: int = 0
    status: Status = "final"

    @property
    def is_talk(self) -> bool:
        """May a model see it?"""
        return self.role != "notice" and not self.is_command


_COLUMNS = ", ".join(field.name for field in fields(StoredMessage))


async def append(
    tx: Transaction,
    conv_id: int,
    *,
    role: Role,
    content: str,
    now: float,
    sender: str = "",
    sender_name: str = "",
    packet_id: int | None = None,
    reply_to: int | None = None,
    is_command: bool = False,
    tokens_est: int = 0,
) -> StoredMessage:
    """Add a message to the conversation's current epoch under the next sequence number."""
    place = await tx.fetch_one("SELECT next_seq, epoch FROM conversations WHERE id = ?", (conv_id,))
    if place is None:
        raise LookupError(f"no conversation {conv_id}")
    seq, epoch = int(place["next_seq"]), int(place["epoch"])
    text = content.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be stored
    await tx.execute("UPDATE conversations SET next_seq = ?, last_active = ? WHERE id = ?", (seq + 1, now, conv_id))
    row_id = await tx.insert(
        "INSERT INTO messages (conv_id, seq, epoch, role, sender, sender_name, content, created_at, packet_id,"
        " reply_to, is_command, tokens_est) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (conv_id, seq, epoch, role, sender, sender_name, text, now, packet_id, reply_to, int(is_command), tokens_est),
    )
    return StoredMessage(
        row_id, conv_id, seq, epoch, role, sender, sender_name, text, now, packet_id, reply_to, is_command, tokens_est
    )


async def set_status(tx: Transaction, message_id: int, status: Status) -> None:
    """What became of an answer's delivery; the text is never touched."""
    await tx.execute("UPDATE messages SET status = ? WHERE id = ?", (status, message_id))


async def extend(tx: Transaction, message_id: int, more: str) -> None:
    """Let an answer that was cut go on: ``!more`` stores the continuation in the same message."""
    text = more.encode("utf-8", "replace").decode("utf-8")
    await tx.execute("UPDATE messages SET content = content || ?, tokens_est = 0 WHERE id = ?", (text, message_id))


async def get(q: Queries, message_id: int) -> StoredMessage | None:
    """The message with this id."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM messages WHERE id = ?", (message_id,))
    return _message(row) if row else None


async def by_packet(q: Queries, sender: str, packet_id: int, *, since: float) -> StoredMessage | None:
    """The newest message of this packet since a time: packet ids recur over years, so a window bounds the search."""
    row = await q.fetch_one(
        f"SELECT {_COLUMNS} FROM messages WHERE sender = ? AND packet_id = ? AND created_at >= ?"
        " ORDER BY id DESC LIMIT 1",
        (sender, packet_id, since),
    )
    return _message(row) if row else None


async def count_epoch(q: Queries, conv_id: int) -> int:
    """User's and bot's messages of the current epoch; commands and notices are not messages (DESIGN §4.3)."""
    return int(
        await q.fetch_value(
            f"SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conv_id"
            f" WHERE m.conv_id = ? AND m.epoch = c.epoch AND {IS_TALK}",
            (conv_id,),
        )
    )


async def between(q: Queries, conv_id: int, start_seq: int, end_seq: int, *, limit: int = -1) -> list[StoredMessage]:
    """The talk rows with start_seq <= seq <= end_seq, oldest first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND seq BETWEEN ? AND ? AND {IS_TALK} ORDER BY seq LIMIT ?",
        (conv_id, start_seq, end_seq, limit),
    )
    return [_message(row) for row in rows]


async def newest(q: Queries, conv_id: int, from_seq: int, *, limit: int) -> list[StoredMessage]:
    """The newest ``limit`` talk rows with seq >= from_seq, oldest first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND seq >= ? AND {IS_TALK} ORDER BY seq DESC LIMIT ?",
        (conv_id, from_seq, limit),
    )
    return [_message(row) for row in reversed(rows)]


async def newest_before(q: Queries, conv_id: int, seq: int, first_seq: int, *, limit: int) -> list[StoredMessage]:
    """The newest ``limit`` talk rows with first_seq <= seq < ``seq``, oldest first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND seq >= ? AND seq < ? AND {IS_TALK}"
        " ORDER BY seq DESC LIMIT ?",
        (conv_id, first_seq, seq, limit),
    )
    return [_message(row) for row in reversed(rows)]


async def page(q: Queries, conv_id: int, *, before_seq: int | None = None, limit: int = 50) -> list[StoredMessage]:
    """Everything archived, commands and notices and earlier epochs too, newest page first; each page oldest first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
        (conv_id, 2**62 if before_seq is None else before_seq, limit),
    )
    return [_message(row) for row in reversed(rows)]


async def latest_answer(q: Queries, conv_id: int) -> StoredMessage | None:
    """The bot's newest answer of the current epoch."""
    row = await q.fetch_one(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND role = 'assistant' AND is_command = 0"
        " AND epoch = (SELECT epoch FROM conversations WHERE id = conv_id) ORDER BY seq DESC LIMIT 1",
        (conv_id,),
    )
    return _message(row) if row else None


def _message(row: Row) -> StoredMessage:
    values = {name: row[name] for name in row.keys()}  # noqa: SIM118 - sqlite3.Row iterates over values
    values["is_command"] = bool(values["is_command"])
    return StoredMessage(**values)
