"""Queries on ``inbound``: the questions, from received to answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshai.storage.database import Queries, Transaction

DUPLICATE_WINDOW_S = 3600.0
"""Packet ids are 32 bits and recur over an archive of years: a repeat within an hour is a retransmission."""


@dataclass(frozen=True, slots=True)
class InboundRow:
    """One row of ``inbound``."""

    id: int
    node_id: str
    packet_id: int
    public_key: bytes | None
    conv_id: int | None
    channel_index: int | None
    content: str
    kind: str
    state: str
    reply_id: int | None
    hops: int | None
    snr: float | None
    rssi: int | None
    rx_time: float | None
    message_id: int | None
    answer_id: int | None
    received_at: float


_COLUMNS = ", ".join(InboundRow.__dataclass_fields__)


async def is_duplicate(q: Queries, node_id: str, packet_id: int, *, now: float) -> bool:
    """Whether this packet was seen within the last hour; a clock that went back does not hide a repeat."""
    seen = await q.fetch_value(
        "SELECT 1 FROM inbound WHERE node_id = ? AND packet_id = ? AND abs(? - received_at) < ? LIMIT 1",
        (node_id, packet_id, now, DUPLICATE_WINDOW_S),
    )
    return seen is not None


async def insert(
    tx: Transaction,
    *,
    node_id: str,
    packet_id: int,
    content: str,
    now: float,
    public_key: bytes | None = None,
    conv_id: int | None = None,
    channel_index: int | None = None,
    kind: str = "chat",
    state: str = "received",
    reason: str = "",
    reply_id: int | None = None,
    hops: int | None = None,
    snr: float | None = None,
    rssi: int | None = None,
    rx_time: float | None = None,
    message_id: int | None = None,
) -> int:
    """Store a packet; returns its row id."""
    return await tx.insert(
        """
        INSERT INTO inbound (node_id, packet_id, public_key, conv_id, channel_index, content, kind, state, reason,
                             reply_id, hops, snr, rssi, rx_time, message_id, received_at, updated_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            node_id, packet_id, public_key, conv_id, channel_index, content, kind, state, reason,
            reply_id, hops, snr, rssi, rx_time, message_id, now, now,
        ),
    )  # fmt: skip


async def set_state(
    tx: Transaction, row_id: int, state: str, *, now: float, reason: str = "", answer_id: int | None = None
) -> None:
    """Move a question on; ``answer_id`` None keeps the stored one."""
    await tx.execute(
        "UPDATE inbound SET state = ?, reason = ?, updated_at = ?, answer_id = coalesce(?, answer_id) WHERE id = ?",
        (state, reason, now, answer_id, row_id),
    )


async def join(tx: Transaction, row_ids: Sequence[int], last_id: int) -> None:
    """These questions are answered together with a later one: they share its answer, which is being written."""
    for row_id in row_ids:
        await tx.execute(
            "UPDATE inbound SET answer_id = (SELECT max(id) FROM answers WHERE inbound_id = ?) WHERE id = ?",
            (last_id, row_id),
        )


async def open_questions(q: Queries) -> list[InboundRow]:
    """Questions a restart or an outage left unanswered, oldest first."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM inbound WHERE state IN ('received', 'answering') ORDER BY id")
    return [InboundRow(*row) for row in rows]


async def asked_since(q: Queries, since: float) -> list[tuple[str, float]]:
    """Node and time of every question since a time, oldest first: seeds the hourly rates after a restart."""
    rows = await q.fetch_all(
        "SELECT node_id, received_at FROM inbound WHERE kind = 'chat' AND received_at >= ? AND state <> 'ignored' "
        "ORDER BY id",
        (since,),
    )
    return [(str(row[0]), float(row[1])) for row in rows]
