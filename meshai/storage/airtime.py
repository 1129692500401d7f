"""Queries on ``airtime_ledger``: own time on air per day and node, and the hour behind us."""

from __future__ import annotations

import time

from meshai.storage.database import Queries, Transaction

_SENT_SINCE = "SELECT sent_at, airtime_ms FROM outbound WHERE sent_at >= ? AND sent_at <= ? ORDER BY sent_at"


def day_of(now: float) -> str:
    """The day of the ledger, local time: ``2026-03-01``."""
    return time.strftime("%Y-%m-%d", time.localtime(now))


async def add(tx: Transaction, node_id: str, *, packets: int, airtime_ms: int, now: float) -> None:
    """Book time on air; negative values take a booking back."""
    await tx.execute(
        "INSERT INTO airtime_ledger (day, node_id, packets, airtime_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (day, node_id) DO UPDATE SET"
        " packets = max(0, packets + excluded.packets), airtime_ms = max(0, airtime_ms + excluded.airtime_ms)",
        (day_of(now), node_id, packets, airtime_ms),
    )


async def on_day(q: Queries, now: float) -> list[tuple[str, int, int]]:
    """Node, packets and milliseconds of a day, the greatest user first."""
    rows = await q.fetch_all(
        "SELECT node_id, packets, airtime_ms FROM airtime_ledger WHERE day = ? ORDER BY airtime_ms DESC, node_id",
        (day_of(now),),
    )
    return [(str(row[0]), int(row[1]), int(row[2])) for row in rows]


async def sent_since(q: Queries, since: float, *, now: float) -> list[tuple[float, int]]:
    """When and how long each packet since a time was on the air: fills the rolling hour after a restart."""
    return [(float(row[0]), int(row[1])) for row in await q.fetch_all(_SENT_SINCE, (since, now))]
