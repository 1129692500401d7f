"""Queries on ``outbound``: packets, from queued to delivered (DESIGN §3 States).

``reason`` says why a packet is where it is. On a queued packet it is one of the tags below; on a settled one it is
the Routing.Error name or a word of ours. A row whose ``settled_at`` is set waits for nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshai.storage.database import Queries, Row, Transaction, Value

State = Literal["queued", "sent", "relayed", "delivered", "failed", "expired", "held"]

REPEAT = "repeat"  # queued once more under the same id, its fate is unknown (DESIGN §3 After a crash)
RETRY = "retry"  # known lost, once more under a new id, not while the channel is busy
RETRY_RELAYED = "retry relayed"  # only relayed, once more after the last part
LATE = "late"  # was held, the node was heard again
WAIT = "wait"  # the node asked us to wait: nothing was transmitted
UNKNOWN = "unknown"  # sent, never confirmed, not known lost
SUPERSEDED = "superseded"  # its text is in another row


@dataclass(frozen=True, slots=True)
class Packet:
    """One row of ``outbound`` with the kind of its answer."""

    id: int
    answer_id: int
    node_id: str
    public_key: bytes | None
    channel_index: int | None
    packet_id: int
    part: int
    total: int
    reply_id: int | None
    content: str
    text_from: int
    state: State
    priority: int
    attempts: int
    reason: str
    hop_limit: int | None
    airtime_ms: int
    not_before: float | None
    expires_at: float
    created_at: float
    sent_at: float | None
    settled_at: float | None
    kind: str

    @property
    def person(self) -> tuple[str, bytes | None, int | None]:
        """Who waits for whom: one packet in flight per destination (protocol.md §4)."""
        return (self.node_id, self.public_key, self.channel_index)

    @property
    def is_dm(self) -> bool:
        """Addressed to one node."""
        return self.channel_index is None


_OWN = [name for name in Packet.__dataclass_fields__ if name != "kind"]
_SELECT = (
    f"SELECT {', '.join('o.' + name for name in _OWN)}, a.kind FROM outbound o JOIN answers a ON a.id = o.answer_id"
)


async def _packets(q: Queries, where: str, params: tuple[Value, ...] = ()) -> list[Packet]:
    return [Packet(*row) for row in await q.fetch_all(f"{_SELECT} WHERE {where}", params)]


async def insert(
    tx: Transaction,
    *,
    answer_id: int,
    node_id: str,
    public_key: bytes | None,
    channel_index: int | None,
    packet_id: int,
    part: int,
    total: int,
    content: str,
    priority: int,
    now: float,
    expires_at: float,
    reply_id: int | None = None,
    text_from: int = 0,
    hop_limit: int | None = None,
    airtime_ms: int = 0,
    state: State = "queued",
    reason: str = "",
    attempts: int = 0,
    not_before: float | None = None,
    settled_at: float | None = None,
) -> int:
    """Store a packet; returns its row id."""
    return await tx.insert(
        "INSERT INTO outbound (answer_id, node_id, public_key, channel_index, packet_id, part, total, reply_id,"
        " content, text_from, state, priority, attempts, reason, hop_limit, airtime_ms, not_before,"
        " expires_at, created_at, settled_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            answer_id, node_id, public_key, channel_index, packet_id, part, total, reply_id, content, text_from,
            state, priority, attempts, reason, hop_limit, airtime_ms, not_before, expires_at, now,
            settled_at,
        ),
    )  # fmt: skip


async def copy(
    tx: Transaction,
    packet: Packet,
    *,
    packet_id: int,
    reason: str,
    now: float,
    expires_at: float,
    not_before: float | None = None,
    priority: int | None = None,
    attempts: int | None = None,
    reply_id: int | None = None,
) -> int:
    """Queue the same part under a new id; without the reply unless ``reply_id`` says it."""
    return await insert(
        tx, answer_id=packet.answer_id, node_id=packet.node_id, public_key=packet.public_key,
        channel_index=packet.channel_index, packet_id=packet_id, part=packet.part, total=packet.total,
        content=packet.content, text_from=packet.text_from, reply_id=reply_id, hop_limit=packet.hop_limit,
        airtime_ms=packet.airtime_ms, reason=reason, now=now, expires_at=expires_at, not_before=not_before,
        priority=packet.priority if priority is None else priority,
        attempts=packet.attempts if attempts is None else attempts,
    )  # fmt: skip


async def get(q: Queries, row_id: int) -> Packet | None:
    """The packet with this row id."""
    found = await _packets(q, "o.id = ?", (row_id,))
    return found[0] if found else None


async def by_packet_id(q: Queries, packet_id: int) -> Packet | None:
    """The newest packet with this id, None if it is none of ours (protocol.md §9.1: stray ACKs are normal)."""
    found = await _packets(q, "o.packet_id = ? ORDER BY o.id DESC LIMIT 1", (packet_id,))
    return found[0] if found else None


async def queued(q: Queries, *, limit: int = 300) -> list[Packet]:
    """What waits to be sent, in the order of its own person's turn."""
    where = "o.settled_at IS NULL AND o.state = 'queued' ORDER BY o.priority, o.answer_id, o.part, o.id LIMIT ?"
    return await _packets(q, where, (limit,))


async def in_flight(q: Queries) -> list[Packet]:
    """Sent or relayed, fate still open."""
    return await _packets(q, "o.state IN ('sent', 'relayed') AND o.settled_at IS NULL ORDER BY o.id")


async def overdue(q: Queries, now: float) -> list[Packet]:
    """Queued or held past their time."""
    return await _packets(
        q, "o.settled_at IS NULL AND o.state IN ('queued', 'held') AND o.expires_at <= ? ORDER BY o.id", (now,)
    )


async def of_answer(q: Queries, answer_id: int) -> list[Packet]:
    """Every packet of an answer, superseded ones too, in order of part and age."""
    return await _packets(q, "o.answer_id = ? ORDER BY o.part, o.id", (answer_id,))


async def held_of_node(q: Queries, node_id: str) -> list[Packet]:
    """What is held for a node, oldest answer first; answers still being written are not ready."""
    return await _packets(
        q,
        "o.settled_at IS NULL AND o.state = 'held' AND o.node_id = ? AND a.complete = 1"
        " ORDER BY o.answer_id, o.part, o.id",
        (node_id,),
    )


async def nodes_with_held(q: Queries) -> set[str]:
    """The nodes something is held for."""
    rows = await q.fetch_all("SELECT DISTINCT node_id FROM outbound WHERE settled_at IS NULL AND state = 'held'")
    return {str(row[0]) for row in rows}


async def set_state(
    tx: Transaction,
    row_id: int,
    state: State,
    *,
    reason: str = "",
    settled_at: float | None = None,
    expires_at: float | None = None,
    not_before: float | None = None,
) -> None:
    """Move a packet on. ``settled_at`` None: its fate is still open; ``expires_at`` None keeps the stored one."""
    await tx.execute(
        "UPDATE outbound SET state = ?, reason = ?, settled_at = ?, expires_at = coalesce(?, expires_at),"
        " not_before = ? WHERE id = ?",
        (state, reason, settled_at, expires_at, not_before, row_id),
    )


async def mark_sent(
    tx: Transaction, packet: Packet, *, now: float, reason: str, airtime_ms: int, settled: bool
) -> None:
    """The packet was handed over to the node."""
    await tx.execute(
        "UPDATE outbound SET state = 'sent', reason = ?, attempts = attempts + 1, sent_at = ?, settled_at = ?,"
        " airtime_ms = ? WHERE id = ?",
        (reason, now, now if settled else None, airtime_ms, packet.id),
    )


async def extend_later_parts(tx: Transaction, packet: Packet, *, expires_at: float) -> None:
    """The first part is on the air: the others have their own time now (DESIGN §3 Times)."""
    await tx.execute(
        "UPDATE outbound SET expires_at = ? WHERE answer_id = ? AND state = 'queued' AND part > ? AND sent_at IS NULL",
        (expires_at, packet.answer_id, packet.part),
    )


async def set_later_parts(
    tx: Transaction, packet: Packet, state: State, *, reason: str, now: float, expires_at: float | None = None
) -> int:
    """What happens to a part happens to the queued and held parts after it, too."""
    return await tx.execute(
        "UPDATE outbound SET state = ?, reason = ?, settled_at = ?, expires_at = coalesce(?, expires_at)"
        " WHERE answer_id = ? AND part > ? AND state IN ('queued', 'held')",
        (state, reason, now if state != "held" else None, expires_at, packet.answer_id, packet.part),
    )


async def settle_person(
    tx: Transaction, node_id: str, public_key: bytes | None, *, channel_index: int | None, reason: str, now: float
) -> int:
    """Everything not sent to a person expires; returns the number of packets."""
    return await tx.execute(
        "UPDATE outbound SET state = 'expired', reason = ?, settled_at = ?"
        " WHERE node_id = ? AND public_key IS ? AND channel_index IS ? AND state IN ('queued', 'held')",
        (reason, now, node_id, public_key, channel_index),
    )


async def drop_copies(tx: Transaction, packet: Packet, *, now: float) -> int:
    """One copy of a part arrived: those still waiting are not needed; returns how many."""
    return await tx.execute(
        "UPDATE outbound SET state = 'failed', reason = ?, settled_at = ? WHERE answer_id = ? AND part = ? AND id <> ?"
        " AND (state = 'held' OR (state = 'queued' AND reason IN (?, ?, ?)))",
        (SUPERSEDED, now, packet.answer_id, packet.part, packet.id, RETRY, RETRY_RELAYED, LATE),
    )


async def unhold(tx: Transaction, answer_id: int, *, expires_at: float) -> None:
    """The part that held the others up arrived after all."""
    await tx.execute(
        "UPDATE outbound SET state = 'queued', reason = '', settled_at = NULL, expires_at = ?"
        " WHERE answer_id = ? AND state = 'held'",
        (expires_at, answer_id),
    )


async def drop_tapbacks(tx: Transaction, inbound_id: int, *, now: float) -> None:
    """The answer is ready: a tapback that is still waiting has nothing to say."""
    await tx.execute(
        "UPDATE outbound SET state = 'expired', reason = 'answered', settled_at = ? WHERE state = 'queued'"
        " AND answer_id IN (SELECT id FROM answers WHERE inbound_id = ? AND kind = 'tapback')",
        (now, inbound_id),
    )


async def set_total(tx: Transaction, answer_id: int, total: int) -> None:
    """The answer is complete: now its packets know of how many."""
    await tx.execute("UPDATE outbound SET total = ? WHERE answer_id = ?", (total, answer_id))


async def last_sent_at(q: Queries) -> float | None:
    """When the newest packet was handed over."""
    value = await q.fetch_value("SELECT max(sent_at) FROM outbound WHERE sent_at IS NOT NULL")
    return float(value) if value is not None else None


async def queued_airtime_ms(q: Queries) -> int:
    """Time on air the queued packets will take, command replies excepted: it is reserved."""
    sql = "SELECT coalesce(sum(airtime_ms), 0) FROM outbound"
    sql += " WHERE settled_at IS NULL AND state = 'queued' AND priority > 0"
    return int(await q.fetch_value(sql))


async def counts(q: Queries) -> dict[str, int]:
    """How many packets are queued, in flight and held."""
    row: Row | None = await q.fetch_one(
        "SELECT coalesce(sum(state = 'queued'), 0) AS queued,"
        " coalesce(sum(state IN ('sent', 'relayed')), 0) AS in_flight,"
        " coalesce(sum(state = 'held'), 0) AS held FROM outbound WHERE settled_at IS NULL"
    )
    return {key: int(row[key]) for key in ("queued", "in_flight", "held")} if row else {}


async def shift_times(tx: Transaction, delta: float, *, up_to_id: int) -> None:
    """The computer's clock jumped: the open packets' times jump with it."""
    await tx.execute(
        "UPDATE outbound SET expires_at = expires_at + ?1, not_before = not_before + ?1, sent_at = sent_at + ?1"
        " WHERE id <= ?2 AND (state IN ('queued', 'held') OR settled_at IS NULL)",
        (delta, up_to_id),
    )


async def newest_id(q: Queries) -> int:
    """The highest row id, 0 when there is none."""
    return int(await q.fetch_value("SELECT coalesce(max(id), 0) FROM outbound"))
