"""Queries on ``answers``: an answer as a whole; its packets are in ``outbound``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshai.storage.database import Queries, Row, Transaction

Kind = Literal["answer", "command", "notice", "more", "tapback"]

IS_PERSON = "{0}node_id = ? AND {0}public_key IS ?"
"""SQL: the row is for this person. A person is a public key (DESIGN §3 Identity)."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One row of ``answers``."""

    id: int
    inbound_id: int | None
    conv_id: int | None
    node_id: str
    public_key: bytes | None
    kind: Kind
    text: str
    rest: str
    truncated: bool
    complete: bool
    message_id: int | None
    asked_at: float | None
    created_at: float


_COLUMNS = ", ".join(AnswerRow.__dataclass_fields__)


async def insert(
    tx: Transaction,
    *,
    node_id: str,
    public_key: bytes | None,
    kind: Kind,
    now: float,
    text: str = "",
    rest: str = "",
    truncated: bool = False,
    complete: bool = True,
    inbound_id: int | None = None,
    conv_id: int | None = None,
    message_id: int | None = None,
    asked_at: float | None = None,
) -> int:
    """Store an answer; returns its id."""
    return await tx.insert(
        "INSERT INTO answers (inbound_id, conv_id, node_id, public_key, kind, text, rest, truncated, complete,"
        " message_id, asked_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            inbound_id, conv_id, node_id, public_key, kind, text, rest, int(truncated), int(complete),
            message_id, asked_at, now,
        ),
    )  # fmt: skip


async def get(q: Queries, answer_id: int) -> AnswerRow | None:
    """The answer with this id."""
    return _answer(await q.fetch_one(f"SELECT {_COLUMNS} FROM answers WHERE id = ?", (answer_id,)))


async def grow(
    tx: Transaction,
    answer_id: int,
    *,
    text: str,
    rest: str = "",
    truncated: bool = False,
    complete: bool = False,
    message_id: int | None = None,
) -> None:
    """An answer that is being written got further, or is complete."""
    await tx.execute(
        "UPDATE answers SET text = ?, rest = ?, truncated = ?, complete = ?, message_id = coalesce(?, message_id)"
        " WHERE id = ?",
        (text, rest, int(truncated), int(complete), message_id, answer_id),
    )


async def latest(
    q: Queries, node_id: str, public_key: bytes | None, *, conv_id: int | None = None, texts_only: bool = False
) -> AnswerRow | None:
    """The person's newest answer, tapbacks excepted; ``texts_only``: only what a model said."""
    kinds = "('answer', 'more')" if texts_only else "('answer', 'more', 'command', 'notice')"
    return _answer(
        await q.fetch_one(
            f"SELECT {_COLUMNS} FROM answers WHERE {IS_PERSON.format('')} AND kind IN {kinds}"
            " AND (? IS NULL OR conv_id IS ?) ORDER BY id DESC LIMIT 1",
            (node_id, public_key, conv_id, conv_id),
        )
    )


async def take_rest(tx: Transaction, answer_id: int) -> None:
    """What waited for ``!more`` was handed over to another answer."""
    await tx.execute("UPDATE answers SET rest = '', truncated = 0 WHERE id = ?", (answer_id,))


async def drop_rests(tx: Transaction, node_id: str, public_key: bytes | None) -> None:
    """``!reset``: nothing of the earlier conversation waits for ``!more`` any longer."""
    await tx.execute(
        f"UPDATE answers SET rest = '', truncated = 0 WHERE {IS_PERSON.format('')} AND (rest <> '' OR truncated)",
        (node_id, public_key),
    )


async def incomplete(q: Queries) -> list[AnswerRow]:
    """Answers that were being written when the program ended, oldest first."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM answers WHERE complete = 0 ORDER BY id")
    return [answer for answer in map(_answer, rows) if answer is not None]


async def offers_more(q: Queries, node_id: str, packet_id: int) -> bool:
    """Whether this packet of ours to that node belongs to an answer of which more waits."""
    found = await q.fetch_value(
        "SELECT 1 FROM outbound o JOIN answers a ON a.id = o.answer_id"
        " WHERE o.packet_id = ? AND o.node_id = ? AND (a.rest <> '' OR a.truncated) LIMIT 1",
        (packet_id, node_id),
    )
    return found is not None


async def message_of_packet(q: Queries, node_id: str, packet_id: int) -> int | None:
    """The stored message a packet of ours to that node belongs to: what an incoming reply points at."""
    found = await q.fetch_value(
        "SELECT a.message_id FROM outbound o JOIN answers a ON a.id = o.answer_id"
        " WHERE o.packet_id = ? AND o.node_id = ? ORDER BY o.id DESC LIMIT 1",
        (packet_id, node_id),
    )
    return int(found) if found is not None else None


def _answer(row: Row | None) -> AnswerRow | None:
    if row is None:
        return None
    values = dict(row)
    values["truncated"], values["complete"] = bool(values["truncated"]), bool(values["complete"])
    return AnswerRow(**values)
