"""Removing the traces of old traffic: questions, answers and packets. The archive of messages is not touched."""

from __future__ import annotations

from meshai.storage.database import Transaction

TRAFFIC_DAYS = 30
"""Receipts and packets older than this serve nobody; what was said is in ``messages``."""
_ROWS_AT_ONCE = 2000
"""One round deletes no more, so that a question never waits long for the database."""


async def traffic(tx: Transaction, *, before: float) -> int:
    """Delete finished questions and answers (with their packets) older than a time; returns the number of rows.

    Each person's newest answer stays: ``!again`` and ``!more`` need it.
    """
    answers = await tx.execute(
        "DELETE FROM answers WHERE id IN (SELECT id FROM answers a WHERE a.created_at < ? AND a.complete"
        " AND NOT EXISTS (SELECT 1 FROM outbound o WHERE o.answer_id = a.id AND o.state IN ('queued', 'sent', 'held')"
        " AND o.settled_at IS NULL)"
        " AND EXISTS (SELECT 1 FROM answers n WHERE n.node_id = a.node_id AND n.public_key IS a.public_key"
        " AND n.kind IN ('answer', 'more') AND n.id > a.id) LIMIT ?)",
        (before, _ROWS_AT_ONCE),
    )
    questions = await tx.execute(
        "DELETE FROM inbound WHERE id IN (SELECT id FROM inbound WHERE received_at < ?"
        " AND state IN ('answered', 'ignored', 'expired') LIMIT ?)",
        (before, _ROWS_AT_ONCE),
    )
    return answers + questions


async def prompts(tx: Transaction, *, before: float) -> int:
    """Forget the exact prompts of calls older than a time; their figures stay."""
    return await tx.execute("UPDATE llm_calls SET prompt = NULL WHERE created_at < ? AND prompt IS NOT NULL", (before,))
