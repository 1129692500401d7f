"""Queries on ``nodes``, ``notices`` and ``blocks``: what the bot knows of a node, whoever holds its key."""

from __future__ import annotations

from dataclasses import dataclass

from meshai.storage.database import Queries, Transaction


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One row of ``nodes``."""

    node_id: str
    long_name: str
    short_name: str
    last_heard: float
    hops: int | None
    snr: float | None
    rssi: int | None
    parts_sent: int
    parts_delivered: int
    parts_relayed: int
    parts_failed: int
    ignored_no_pki: int
    key_alarm_at: float | None


_COLUMNS = ", ".join(NodeRow.__dataclass_fields__)


async def get(q: Queries, node_id: str) -> NodeRow | None:
    """The node's row, None before it was first heard."""
    row = await q.fetch_one(f"SELECT {_COLUMNS} FROM nodes WHERE node_id = ?", (node_id,))
    return NodeRow(*row) if row else None


async def every(q: Queries) -> list[NodeRow]:
    """All nodes, the latest heard first."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM nodes ORDER BY last_heard DESC, node_id")
    return [NodeRow(*row) for row in rows]


async def heard(
    tx: Transaction,
    node_id: str,
    *,
    now: float,
    hops: int | None = None,
    snr: float | None = None,
    rssi: int | None = None,
    long_name: str = "",
    short_name: str = "",
) -> None:
    """Note that a node was heard; unknown values leave the stored ones as they are."""
    await tx.execute(
        """
        INSERT INTO nodes (node_id, long_name, short_name, first_heard, last_heard, hops, snr, rssi)
        VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7)
        ON CONFLICT (node_id) DO UPDATE SET
            last_heard = ?4, hops = coalesce(?5, hops), snr = coalesce(?6, snr), rssi = coalesce(?7, rssi),
            long_name = CASE WHEN ?2 <> '' THEN ?2 ELSE long_name END,
            short_name = CASE WHEN ?3 <> '' THEN ?3 ELSE short_name END
        """,
        (node_id, long_name, short_name, now, hops, snr, rssi),
    )


async def count_no_pki(tx: Transaction, node_id: str, *, now: float) -> None:
    """One more DM of this node was not answered for lack of PKI."""
    await heard(tx, node_id, now=now)
    await tx.execute("UPDATE nodes SET ignored_no_pki = ignored_no_pki + 1 WHERE node_id = ?", (node_id,))


async def raise_key_alarm(tx: Transaction, node_id: str, *, now: float) -> None:
    """A node with a pinned key sent a DM that its key does not open (protocol.md §9.5)."""
    await tx.execute("UPDATE nodes SET key_alarm_at = ? WHERE node_id = ?", (now, node_id))


async def has_key_alarm(q: Queries, node_id: str) -> bool:
    """Whether the key question of a node is open."""
    return await q.fetch_value("SELECT key_alarm_at FROM nodes WHERE node_id = ?", (node_id,)) is not None


async def clear_key_alarm(tx: Transaction, node_id: str) -> None:
    """The key question is settled."""
    await tx.execute("UPDATE nodes SET key_alarm_at = NULL WHERE node_id = ?", (node_id,))


async def may_notify(tx: Transaction, node_id: str, kind: str, *, now: float, every_s: float) -> bool:
    """True at most once in ``every_s`` for a node and a kind of notice; a True counts as said.

    A clock that went back does not silence a notice for ever.
    """
    last = await tx.fetch_value("SELECT last_at FROM notices WHERE node_id = ? AND kind = ?", (node_id, kind))
    if last is not None and 0 <= now - float(last) < every_s:
        return False
    await tx.execute(
        "INSERT INTO notices (node_id, kind, last_at) VALUES (?, ?, ?) "
        "ON CONFLICT (node_id, kind) DO UPDATE SET last_at = excluded.last_at",
        (node_id, kind, now),
    )
    return True


async def block(tx: Transaction, node_id: str, *, now: float, until: float | None, reason: str) -> None:
    """Silence a node; ``until`` None is for good."""
    await tx.execute(
        "INSERT INTO blocks (node_id, until, reason, created_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (node_id) DO UPDATE SET until = excluded.until, reason = excluded.reason",
        (node_id, until, reason, now),
    )


async def unblock(tx: Transaction, node_id: str) -> bool:
    """End a block; False when there was none."""
    return await tx.execute("DELETE FROM blocks WHERE node_id = ?", (node_id,)) > 0


async def is_blocked(q: Queries, node_id: str, *, now: float) -> bool:
    """Whether a block is in force."""
    row = await q.fetch_one("SELECT until FROM blocks WHERE node_id = ?", (node_id,))
    return row is not None and (row[0] is None or now < float(row[0]))
