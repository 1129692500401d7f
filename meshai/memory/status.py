"""A conversation's memory in figures, for ``!memory``, ``!status`` and ``meshai memory status`` (S3-22)."""

from __future__ import annotations

from dataclasses import dataclass

from meshai.memory.context import Context
from meshai.storage import conversations, facts, messages, summaries


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """Figures of the current epoch.

    ``compact_every`` 0: the strategy's own rule; ``retention`` 0-1, of the summaries in force; ``depth``: rewrites.
    """

    enabled: bool
    strategy: str
    compact_every: int
    messages: int
    archived: int
    since_last: int
    summaries: int
    max_level: int
    facts: int
    last_failure: str
    extractive: int = 0
    running: bool = False
    depth: int = 0
    retention: float = 1.0
    last_success: float | None = None
    average_ms: int = 0
    stored_for_good: int = 0


async def status_of(ctx: Context, conv_id: int) -> MemoryStatus:
    """The figures of a conversation."""
    conv = await conversations.load(ctx.db, conv_id)
    chain = await summaries.chain(ctx.db, conv_id, conv.epoch)
    total = await messages.count_epoch(ctx.db, conv_id)
    raw = await ctx.db.fetch_value(
        f"SELECT count(*) FROM messages WHERE conv_id = ? AND seq >= ? AND {messages.IS_TALK}",
        (conv_id, conv.anchor_seq),
    )
    made = await ctx.db.fetch_one(
        "SELECT max(completed_at) AS last, coalesce(avg(nullif(generation_ms, 0)), 0) AS ms FROM summaries"
        " WHERE conv_id = ? AND epoch = ? AND completed_at IS NOT NULL",
        (conv_id, conv.epoch),
    )
    failed = await summaries.last_failure(ctx.db, conv_id)
    kept = [node.retention for node in chain if node.retention is not None]
    return MemoryStatus(
        enabled=ctx.settings.enabled and conv.memory_enabled,
        strategy=ctx.strategy.name,
        compact_every=conv.compact_every or ctx.settings.compact_every,
        messages=total,
        archived=total - int(raw),
        since_last=int(raw),
        summaries=len(chain),
        max_level=max((node.level for node in chain), default=0),
        facts=len(await facts.current(ctx.db, conv_id)),
        last_failure=failed.error if failed else "",
        extractive=sum(node.quality == "extractive" for node in chain),
        running=await summaries.running(ctx.db, conv_id) is not None,
        depth=max((max(node.level, node.version) for node in chain), default=0),
        retention=sum(kept) / len(kept) if kept else 1.0,
        last_success=made["last"] if made else None,
        average_ms=int(made["ms"]) if made else 0,
        stored_for_good=int(await ctx.db.fetch_value("SELECT count(*) FROM messages WHERE conv_id = ?", (conv_id,))),
    )
