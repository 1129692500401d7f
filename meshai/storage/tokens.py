"""Queries on ``token_ledger``: what models were asked to read and write, per day and node."""

from __future__ import annotations

from meshai.llm.base import CallRecord
from meshai.storage.airtime import day_of
from meshai.storage.database import Queries, Transaction


async def add(tx: Transaction, call: CallRecord, *, now: float) -> None:
    """Book a call for the node whose conversation it was about. Where the server did not count, the estimate counts."""
    request = call.request
    node = await tx.fetch_value("SELECT node_id FROM conversations WHERE id = ?", (request.conv_id,))
    if not node and request.inbound_id:  # somebody without memory
        node = await tx.fetch_value("SELECT node_id FROM inbound WHERE id = ?", (request.inbound_id,))
    await tx.execute(
        "INSERT INTO token_ledger (day, node_id, calls, prompt_tokens, completion_tokens) VALUES (?, ?, 1, ?, ?)"
        " ON CONFLICT (day, node_id) DO UPDATE SET calls = calls + 1,"
        " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
        " completion_tokens = completion_tokens + excluded.completion_tokens",
        (day_of(now), node or "", call.usage.prompt_tokens or request.tokens_est, call.usage.completion_tokens),
    )


async def spent(q: Queries, node_id: str, *, now: float) -> tuple[int, int]:
    """Tokens spent today for this node, and for everybody."""
    row = await q.fetch_one(
        "SELECT coalesce(sum(CASE WHEN node_id = ? THEN prompt_tokens + completion_tokens END), 0),"
        " coalesce(sum(prompt_tokens + completion_tokens), 0) FROM token_ledger WHERE day = ?",
        (node_id, day_of(now)),
    )
    return (int(row[0]), int(row[1])) if row else (0, 0)


async def on_day(q: Queries, now: float) -> list[dict[str, object]]:
    """Every node's calls and tokens of a day, the greatest user first."""
    rows = await q.fetch_all(
        "SELECT node_id, calls, prompt_tokens, completion_tokens FROM token_ledger WHERE day = ?"
        " ORDER BY prompt_tokens + completion_tokens DESC, node_id",
        (day_of(now),),
    )
    return [dict(row) for row in rows]
