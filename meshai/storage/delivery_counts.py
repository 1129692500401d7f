"""Queries on the delivery counters of ``nodes``, and the delivery rate that comes from ``outbound``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshai.storage.database import Queries, Transaction

Counter = Literal["parts_sent", "parts_delivered", "parts_relayed", "parts_failed", "reply_acked", "reply_unacked"]


@dataclass(frozen=True, slots=True)
class History:
    """How a node has confirmed so far."""

    delivered: int = 0
    relayed: int = 0
    failed: int = 0
    reply_acked: int = 0
    reply_unacked: int = 0

    @property
    def ever_acked(self) -> bool:
        """It has sent at least one real ACK."""
        return self.delivered > 0

    @property
    def refuses_replies(self) -> bool:
        """It has ACKed nothing that carried a reply id: firmware before 2.7.12 (protocol.md §3.3)."""
        return self.reply_acked == 0 and self.reply_unacked >= 3


async def add(tx: Transaction, node_id: str, *, now: float, **amounts: int) -> None:
    """Add to a node's counters; the keys are ``Counter`` names."""
    names = sorted(name for name in amounts if name in Counter.__args__)  # type: ignore[attr-defined]
    sets = ", ".join(f"{name} = max(0, {name} + ?)" for name in names)
    await tx.execute(
        "INSERT INTO nodes (node_id, first_heard, last_heard) VALUES (?, ?, 0) ON CONFLICT (node_id) DO NOTHING",
        (node_id, now),
    )
    await tx.execute(
        f"UPDATE nodes SET {sets} WHERE node_id = ?",
        (*(amounts[name] for name in names), node_id),
    )


async def history(q: Queries, node_id: str) -> History:
    """How the node has confirmed so far."""
    row = await q.fetch_one(
        "SELECT parts_delivered, parts_relayed, parts_failed, reply_acked, reply_unacked FROM nodes WHERE node_id = ?",
        (node_id,),
    )
    return History(*row) if row else History()


async def recent_rate(q: Queries, node_id: str, *, last: int = 20) -> tuple[int, int]:
    """Of the last parts whose fate is known: how many were delivered, and how many there were (``!ping``)."""
    row = await q.fetch_one(
        "SELECT coalesce(sum(state = 'delivered'), 0), count(*) FROM (SELECT o.state FROM outbound o"
        " JOIN answers a ON a.id = o.answer_id WHERE o.node_id = ? AND o.channel_index IS NULL AND a.kind <> 'tapback'"
        " AND o.sent_at IS NOT NULL AND o.settled_at IS NOT NULL ORDER BY o.id DESC LIMIT ?)",
        (node_id, last),
    )
    return (int(row[0]), int(row[1])) if row else (0, 0)


async def last_delivered(q: Queries) -> float | None:
    """When a part was last confirmed by the node it was for."""
    at = await q.fetch_value("SELECT settled_at FROM outbound WHERE state = 'delivered' ORDER BY id DESC LIMIT 1")
    return None if at is None else float(at)
