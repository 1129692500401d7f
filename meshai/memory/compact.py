"""When messages become summaries: soft (idle), hard (at once, without a model), manual; docs/memory.md §2.3."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from meshai.memory import jobs, learn
from meshai.memory.better import Betterment, waits
from meshai.memory.context import Context, Look, look
from meshai.memory.jobs import Result
from meshai.memory.make import Source, digest_content, read
from meshai.memory.strategies.base import Job, Rules, View, tail_of_pairs
from meshai.memory.strategies.tiered import space_tail, words
from meshai.storage import conversations, messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Transaction

log = logging.getLogger(__name__)

DIGEST_ROWS = 256
"""Rows one digest may read: keeps it below 10 ms on the way to an answer."""
BACKLOG_ROWS = 400
"""A longer backlog is digested first and refined later: summarising it in full would take hours on a Pi."""


class Compactor:
    """Plans with the strategy and runs what it plans, one step at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._better = Betterment(ctx)

    async def step(self, conv_id: int, *, manual: bool = False) -> Result | None:
        """Do the next thing a conversation needs; None when nothing is due.

        ``manual`` ignores idle rules, backoff and the trigger: whatever is older than the window's pairs goes.
        """
        conv = await conversations.get(self._ctx.db, conv_id)
        if conv is None or not self._is_on(conv):
            return None
        seen = await look(self._ctx, conv)
        if await self._backlog(seen) or await self._fill_gap(seen):
            return Result.DONE
        tuning = self._ctx.settings.tuning
        if manual or (tuning.auto and self._ctx.strategy.due(seen.view, seen.rules)):
            job = self._ctx.strategy.plan(seen.view, seen.rules)
            if job is not None:
                return await self._run(seen, job, manual=manual)
            log.debug("No new messages to summarize for %s", conv.key)
        job = None if self._ctx.model.is_offline else await self._better.next(seen, manual=manual)
        if job is None and (tuning.auto or manual):
            job = self._ctx.strategy.merge(seen.view, seen.rules)
        return await self._run(seen, job, manual=manual) if job is not None else None

    async def hard(self, conv: Conversation, questions: Sequence[int]) -> bool:
        """Digest at once what a full window has too much; no model. ``questions``: rows that must stay raw."""
        seen = await look(self._ctx, conv)
        if not is_full(seen.view, seen.rules, self._ctx.settings.tuning.hard_percent):
            return False
        return await self.digest(seen, keep=self._keep(seen, questions))

    async def digest(self, seen: Look, *, keep: int | None = None, pairs: bool = False) -> bool:
        """Make the next summary without a model, in one transaction; False when there is nothing old enough.

        ``pairs``: keep the window's pairs raw and nothing else, as ``!compact`` does.
        """
        if pairs and self._ctx.strategy.covers_all:
            keep = tail_of_pairs(seen.view.window, seen.rules.window_pairs)
        job = self._ctx.strategy.plan(seen.view, seen.rules, keep=keep)
        if job is None:
            return False
        running = await summaries.running(self._ctx.db, seen.conv.id)
        if running is not None and running.start_seq == job.start_seq and running.end_seq >= seen.conv.anchor_seq:
            job = replace(job, end_seq=running.end_seq)  # so that the running job can still land as its better version
        return await self._commit_digest(seen.conv, job)

    def _keep(self, seen: Look, questions: Sequence[int]) -> int | None:
        """Newest messages that stay raw when space is short, the questions in progress always among them."""
        if not self._ctx.strategy.covers_all:
            return self._in_progress(seen, questions)
        return max(space_tail(seen.view, seen.rules), self._in_progress(seen, questions))

    @staticmethod
    def _in_progress(seen: Look, questions: Sequence[int]) -> int:
        if not questions:
            return 0
        return sum(turn.seq >= min(questions) for turn in seen.view.window)

    async def _commit_digest(self, conv: Conversation, job: Job) -> bool:
        source = await read(self._ctx, conv, job)
        content = digest_content(self._ctx, job, sampled(source))

        async def body(tx: Transaction) -> bool:
            current = await conversations.get(tx, conv.id)
            if current is None or (current.epoch, current.anchor_seq) != (conv.epoch, conv.anchor_seq):
                return False
            for node_id in job.sources:
                node = await summaries.get(tx, node_id)
                if node is None or node.status != "completed" or node.parent_id is not None:
                    return False
            now = self._ctx.clock.now()
            draft = jobs.draft_of(self._ctx, conv, job)
            node_id = await summaries.insert_pending(tx, draft, now=now)
            await summaries.adopt(tx, node_id, job.sources)
            await summaries.complete(tx, node_id, content, now=now)
            if self._ctx.settings.facts:
                await learn.evict(tx, conv, source.rows, (), now=now)
            if job.end_seq >= conv.anchor_seq:
                return await conversations.move_anchor(
                    tx, conv.id, epoch=conv.epoch, old=conv.anchor_seq, new=job.end_seq + 1
                )
            await conversations.touch_prefix(tx, conv.id)
            return True

        done = await self._ctx.db.transaction(body)
        if done:
            log.info("Digested messages %d-%d of %s without a model", job.start_seq, job.end_seq, conv.key)
        return done

    async def _backlog(self, seen: Look) -> bool:
        """Work off what would take the model hours."""
        if len(seen.view.window) < BACKLOG_ROWS:
            return False
        keep = space_tail(seen.view, seen.rules) if self._ctx.strategy.covers_all else 0
        block = View(
            seen.view.epoch_start_seq,
            seen.view.anchor_seq,
            seen.view.chain,
            seen.view.window[: min(DIGEST_ROWS, len(seen.view.window) - keep)],
            seen.view.past,
        )
        roomy = replace(seen.rules, read_tokens=10**9)
        job = self._ctx.strategy.plan(block, roomy, keep=0)
        done = job is not None and await self._commit_digest(seen.conv, job)
        if done:
            await self._merge_digests(seen.conv)
        return done

    async def _merge_digests(self, conv: Conversation) -> None:
        """Keep the chain in order while a backlog is worked off, without a model, too."""
        while True:
            current = await conversations.get(self._ctx.db, conv.id)
            if current is None or current.epoch != conv.epoch:
                return
            seen = await look(self._ctx, current)
            job = self._ctx.strategy.merge(seen.view, seen.rules)
            if job is None or not await self._commit_digest(current, job):
                return

    async def _fill_gap(self, seen: Look) -> bool:
        """After ``sliding``: digest what its node left uncovered; the model betters it later (§2)."""
        if not self._ctx.strategy.covers_all or not seen.chain:
            return False
        first = seen.chain[0].start_seq
        if first <= seen.conv.epoch_start_seq:
            return False
        start = await self._gap_start(seen.conv, first)
        if start is None:
            return False
        job = Job(start, first - 1, "chunk", words(seen.rules), read_from=start)
        return await self._commit_digest(seen.conv, job)

    async def _gap_start(self, conv: Conversation, first: int) -> int | None:
        """Where the last block of the uncovered range begins; the epoch's start when there are no messages in it."""
        rows = await messages.newest_before(self._ctx.db, conv.id, first, conv.epoch_start_seq, limit=DIGEST_ROWS)
        if len(rows) < DIGEST_ROWS:
            return conv.epoch_start_seq
        return rows[0].seq

    async def _run(self, seen: Look, job: Job, *, manual: bool) -> Result | None:
        tried = await summaries.failure(self._ctx.db, jobs.draft_of(self._ctx, seen.conv, job))
        if tried is not None and not manual and waits(tried, self._ctx.clock.now()):
            return None
        result = await jobs.perform(self._ctx, seen.conv, job)
        await self._ctx.meter.save(self._ctx.db)
        return result

    def _is_on(self, conv: Conversation) -> bool:
        return self._ctx.settings.enabled and conv.memory_enabled and conv.closed_at is None


def is_full(view: View, rules: Rules, hard_percent: int) -> bool:
    """Has the window reached its hard limit (S2-16)?"""
    return view.window_tokens * 100 > rules.window_tokens * hard_percent


def sampled(source: Source) -> Source:
    """At most ``DIGEST_ROWS`` rows, evenly: bounds a digest's time whatever the range."""
    rows = source.rows
    if len(rows) <= DIGEST_ROWS:
        return source
    step = len(rows) / DIGEST_ROWS
    return Source([rows[int(index * step)] for index in range(DIGEST_ROWS)], source.previous)
