"""Letting the model better what was digested without it; docs/memory.md §2.3, I8."""

from __future__ import annotations

from collections.abc import Sequence

from meshai.memory import jobs
from meshai.memory.context import Context, Look, turns
from meshai.memory.strategies.base import Job, Turn
from meshai.memory.strategies.tiered import is_batch, words
from meshai.storage import messages, summaries
from meshai.storage.summaries import Summary

MAX_UPGRADES = 5
"""A digest that the model cannot better in this many attempts stays (until ``memory rebuild``)."""
FAR_FUTURE_S = 2 * 3600.0
"""A backoff further away than this comes from a clock that was wrong."""
OLD_S = 6 * 3600.0
"""A digest this old is bettered even if a call for it alone is hardly worth it."""


def waits(node: Summary, now: float) -> bool:
    """Is it too early to try this again?"""
    return node.not_before is not None and 0 < node.not_before - now < FAR_FUTURE_S


class Betterment:
    """Chooses the digests one call can better together."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def next(self, seen: Look, *, manual: bool) -> Job | None:
        """The job for the oldest digests that are due; None when there are none."""
        at = 0
        while at < len(seen.chain):
            node = seen.chain[at]
            at += 1
            if node.quality != "extractive" or (waits(node, self._ctx.clock.now()) and not manual):
                continue
            if await summaries.children(self._ctx.db, node.id) or node.level > 1:
                job = await self._rewrite(seen, node)
            else:
                group, rows = await self._group(seen, at - 1)
                at += len(group) - 1
                job = self._together(seen, group, rows) if manual or self._is_due(seen, group, rows) else None
            if job is not None and (manual or await self._may_try(seen, job)):
                return job
        return None

    async def _may_try(self, seen: Look, job: Job) -> bool:
        tried = await summaries.failure(self._ctx.db, jobs.draft_of(self._ctx, seen.conv, job))
        return tried is None or (tried.attempts < MAX_UPGRADES and not waits(tried, self._ctx.clock.now()))

    async def _group(self, seen: Look, at: int) -> tuple[list[Summary], list[Turn]]:
        """The digest at this place and those after it, as many as one request can read."""
        group: list[Summary] = []
        rows: list[Turn] = []
        for node in seen.chain[at:]:
            plain = node.quality == "extractive" and node.level == 1
            if not plain or (group and await summaries.children(self._ctx.db, node.id)):
                break
            found = await messages.between(self._ctx.db, node.conv_id, node.start_seq, node.end_seq)
            more = turns(found, self._ctx.measure())
            if group and sum(turn.tokens for turn in [*rows, *more]) > seen.rules.read_tokens:
                break
            group.append(node)
            rows += more
        return group, rows

    def _is_due(self, seen: Look, group: Sequence[Summary], rows: Sequence[Turn]) -> bool:
        """Is a call worth it: a full batch, as much as fits, or old?"""
        if is_batch(rows, seen.rules) or group[-1].id != seen.chain[-1].id:
            return True
        return self._ctx.clock.now() - (group[0].completed_at or 0.0) > OLD_S

    @staticmethod
    def _together(seen: Look, group: Sequence[Summary], rows: Sequence[Turn]) -> Job | None:
        if sum(turn.tokens for turn in rows) > seen.rules.read_tokens:
            return None  # too long for one request: memory rebuild makes it anew in parts
        alone = len(group) == 1
        return Job(
            group[0].start_seq,
            group[-1].end_seq,
            "chunk",
            words(seen.rules),
            read_from=group[0].start_seq,
            sources=() if alone else tuple(node.id for node in group),
            retells=False,
            version=group[-1].version,
            replaces=group[0].id if alone else None,
        )

    async def _rewrite(self, seen: Look, node: Summary) -> Job | None:
        """The job that makes a digest of summaries (and messages after them) anew from the same."""
        children = await summaries.children(self._ctx.db, node.id)
        from_seq: int | None = max((child.end_seq for child in children), default=node.start_seq - 1) + 1
        if from_seq is not None and from_seq > node.end_seq:
            from_seq = None
        if from_seq is not None:
            rows = turns(
                await messages.between(self._ctx.db, node.conv_id, from_seq, node.end_seq), self._ctx.measure()
            )
            if sum(turn.tokens for turn in rows) > seen.rules.read_tokens:
                return None
        return Job(
            node.start_seq,
            node.end_seq,
            "merge" if from_seq is None else "rolling",
            words(seen.rules),
            read_from=from_seq,
            sources=tuple(child.id for child in children),
            level=node.level,
            version=node.version,
            replaces=node.id,
        )
