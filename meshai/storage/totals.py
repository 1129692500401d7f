"""Figures over the whole database, for ``status``."""

from __future__ import annotations

from meshai.storage.database import Queries

_COUNTS = {
    "conversations": "SELECT count(*) FROM conversations",
    "messages": "SELECT count(*) FROM messages WHERE role <> 'notice' AND is_command = 0",
    "summaries": "SELECT count(*) FROM summaries WHERE status = 'completed' AND parent_id IS NULL",
    "facts": "SELECT count(*) FROM facts WHERE invalid_at IS NULL",
}


async def totals(q: Queries) -> dict[str, int]:
    """How much is remembered."""
    return {name: int(await q.fetch_value(sql)) for name, sql in _COUNTS.items()}
