"""Making one summary: claim, read, ask, check, commit; docs/memory.md §2.3. Failure changes nothing (P6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from dataclasses import replace
from enum import StrEnum

from meshai.errors import ModelError, PreemptedError, StorageError
from meshai.memory import learn
from meshai.memory.context import Context
from meshai.memory.make import Made, Source, digest_content, made_by_model, read
from meshai.memory.strategies.base import Job
from meshai.storage import conversations, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Transaction
from meshai.storage.summaries import Content, Draft

log = logging.getLogger(__name__)

LEASE_S = 600.0
"""A job older than this is taken for dead (I5)."""
MAX_ATTEMPTS = 3
"""After this many failures the extractive digest stands in."""
REJECTED_S = 3600.0
"""A model that gave no usable text for a range is asked again after this."""
MAX_BACKOFF_MIN = 60


class Result(StrEnum):
    """What became of a job."""

    DONE = "done"
    BUSY = "busy"  # another job of the conversation is running
    LOST = "lost"  # the conversation moved on meanwhile
    FAILED = "failed"
    PREEMPTED = "preempted"


async def perform(ctx: Context, conv: Conversation, job: Job) -> Result:
    """Run a job to its end. Cancelling it counts as giving way to an answer, not as a failure."""
    now = ctx.clock.now()
    try:
        node_id = await _claim(ctx, draft_of(ctx, conv, job), now)
    except sqlite3.IntegrityError:
        log.debug("Summarization already in progress for %s", conv.key)
        return Result.BUSY
    log.debug("Memory %d status updated to processing", node_id)
    started = ctx.clock.monotonic()
    try:
        source = await read(ctx, conv, job)
        made = await made_by_model(ctx, job, source)
    except asyncio.CancelledError:
        ctx.preempted[conv.id, job.start_seq] = ctx.preempted.get((conv.id, job.start_seq), 0) + 1
        await asyncio.shield(_failed(ctx, node_id, "preempted", counted=False))
        raise
    except PreemptedError:
        ctx.preempted[conv.id, job.start_seq] = ctx.preempted.get((conv.id, job.start_seq), 0) + 1
        await _failed(ctx, node_id, "preempted", counted=False)
        return Result.PREEMPTED
    except ModelError as error:
        attempts = await _failed(ctx, node_id, type(error).__name__, counted=True)
        if attempts < MAX_ATTEMPTS or job.replaces is not None:
            return Result.FAILED
        return await _stand_in(ctx, conv, job, source)
    if job.replaces is not None and made.content.quality == "extractive":  # no better than what is there
        await _failed(ctx, node_id, "rejected", counted=True)
        return Result.FAILED
    elapsed = int((ctx.clock.monotonic() - started) * 1000)
    content = replace(made.content, generation_ms=elapsed)
    made = replace(made, content=content)
    landed = await ctx.db.transaction(lambda tx: commit(ctx, tx, conv, job, node_id, made))
    if not landed:
        log.debug("Memory %d status updated to superseded", node_id)
        return Result.LOST
    ctx.preempted.pop((conv.id, job.start_seq), None)
    _log_done(conv, job, node_id, content)
    return Result.DONE


async def _claim(ctx: Context, draft: Draft, now: float) -> int:
    """Begin the node; a cancellation meanwhile does not leave it claimed, for the transaction cannot be stopped."""
    claim = asyncio.ensure_future(
        ctx.db.transaction(lambda tx: summaries.begin(tx, draft, now=now, lease_s=LEASE_S, boot_id=ctx.boot_id))
    )
    try:
        return await asyncio.shield(claim)
    except asyncio.CancelledError:
        with contextlib.suppress(sqlite3.IntegrityError, StorageError):
            await _failed(ctx, await claim, "preempted", counted=False)
        raise


async def commit(ctx: Context, tx: Transaction, conv: Conversation, job: Job, node_id: int, made: Made) -> bool:
    """Everything at once, if the conversation is still as it was when the job was planned; False otherwise."""
    now = ctx.clock.now()
    node = await summaries.get(tx, node_id)
    if node is None:
        return False
    if node.status != "processing" or not await _place(tx, conv, job, node_id):
        await summaries.supersede(tx, node_id, "the conversation moved on")
        return False
    await summaries.complete(tx, node_id, made.content, now=now)
    if made.rejected:
        await summaries.postpone(tx, node_id, now + REJECTED_S)
    if ctx.settings.facts:
        await learn.evict(tx, conv, made.rows, made.facts, now=now)
    return True


async def _place(tx: Transaction, conv: Conversation, job: Job, node_id: int) -> bool:
    """Make room for the node: the anchor, the versions it betters, the sources it takes the place of."""
    current = await conversations.get(tx, conv.id)
    if current is None or current.epoch != conv.epoch:
        return False
    replaces = job.replaces
    if replaces is None and job.end_seq >= conv.anchor_seq and current.anchor_seq != conv.anchor_seq:
        twin = await _digest_twin(tx, conv, job)
        if twin is None:
            return False
        replaces = twin
    if replaces is not None:
        return await _replace(tx, conv.id, replaces, node_id)
    for source in job.sources:
        node = await summaries.get(tx, source)
        if node is None or node.status != "completed" or node.parent_id is not None:
            return False
    await summaries.adopt(tx, node_id, job.sources)
    if job.end_seq >= conv.anchor_seq:
        return await conversations.move_anchor(tx, conv.id, epoch=conv.epoch, old=conv.anchor_seq, new=job.end_seq + 1)
    await conversations.touch_prefix(tx, conv.id)
    return True


async def _digest_twin(tx: Transaction, conv: Conversation, job: Job) -> int | None:
    """The digest that was made of exactly this range while the job ran."""
    for node in await summaries.chain(tx, conv.id, conv.epoch):
        if (node.start_seq, node.end_seq, node.quality) == (job.start_seq, job.end_seq, "extractive"):
            return node.id
    return None


async def _replace(tx: Transaction, conv_id: int, old_id: int, new_id: int) -> bool:
    old = await summaries.get(tx, old_id)
    if old is None or old.status != "completed" or old.parent_id is not None:
        return False
    kept = tuple(child.id for child in await summaries.children(tx, old_id))
    await summaries.supersede(tx, old_id)
    await summaries.adopt(tx, new_id, kept)
    await tx.execute("UPDATE summaries SET replaces_id = ? WHERE id = ?", (old_id, new_id))
    await conversations.touch_prefix(tx, conv_id)
    return True


def draft_of(ctx: Context, conv: Conversation, job: Job) -> Draft:
    """The row a job begins with."""
    return Draft(
        conv_id=conv.id,
        epoch=conv.epoch,
        level=job.level,
        start_seq=job.start_seq,
        end_seq=job.end_seq,
        base_id=job.sources[-1] if job.sources else None,
        replaces_id=job.replaces,
        strategy=ctx.strategy.name,
        version=job.version,
    )


async def _failed(ctx: Context, node_id: int, error: str, *, counted: bool) -> int:
    """Note the failure and when to try again; returns the number of counted attempts."""

    async def body(tx: Transaction) -> int:
        node = await summaries.get(tx, node_id)
        attempts = (node.attempts if node else 0) + int(counted)
        wait_min = min(MAX_BACKOFF_MIN, 2**attempts)
        await summaries.fail(
            tx,
            node_id,
            error=error,
            attempts=attempts,
            not_before=ctx.clock.now() + wait_min * 60 if counted else None,
        )
        return attempts

    attempts = await ctx.db.transaction(body)
    log.debug("Memory %d status updated to failed", node_id)
    return attempts


async def _stand_in(ctx: Context, conv: Conversation, job: Job, source: Source) -> Result:
    """The model failed three times: the digest takes the range, to be bettered later."""
    content = digest_content(ctx, job, source)

    async def body(tx: Transaction) -> bool:
        now = ctx.clock.now()
        try:
            node_id = await summaries.begin(tx, draft_of(ctx, conv, job), now=now, lease_s=LEASE_S, boot_id=ctx.boot_id)
        except sqlite3.IntegrityError:
            return False
        return await commit(ctx, tx, conv, job, node_id, Made(content, source.rows))

    return Result.DONE if await ctx.db.transaction(body) else Result.LOST


def _log_done(conv: Conversation, job: Job, node_id: int, content: Content) -> None:
    log.debug("Memory %d status updated to completed", node_id)
    log.info(
        "Summarized messages %d-%d for %s in %dms", job.start_seq, job.end_seq, conv.key, content.generation_ms or 0
    )
    if job.style == "window" and job.start_seq > conv.epoch_start_seq:
        log.info("Sliding window: dropping seq 0-%d for %s", job.start_seq - 1, conv.key)
