"""Making one summary: claim, read, ask, check, commit; docs/memory.md §2.3. Failure changes nothing (P6)."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from meshai.errors import ModelError
from meshai.llm.base import ChatMessage, ChatRequest, Purpose
from meshai.memory import extractive, prompts, validate
from meshai.memory.context import WORDS_PER_TOKEN, Context, answer_tokens
from meshai.memory.strategies.base import Job
from meshai.memory.tokens import cut_middle
from meshai.memory.window import masked
from meshai.storage import conversations, messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Transaction
from meshai.storage.messages import StoredMessage
from meshai.storage.summaries import Content, Draft, Summary

log = logging.getLogger(__name__)

LEASE_S = 600.0
"""A job older than this is taken for dead (I5)."""
MAX_ATTEMPTS = 3
"""After this many failures the extractive digest stands in."""
MAX_PREEMPTIONS = 2
"""A range gives way to waiting answers this often, then it is finished."""
MAX_BACKOFF_MIN = 60
SLACK = 1.4
"""A summary may be longer than asked for by this, then it is cut."""


class Result(StrEnum):
    """What became of a job."""

    DONE = "done"
    BUSY = "busy"  # another job of the conversation is running
    LOST = "lost"  # the conversation moved on meanwhile
    FAILED = "failed"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True)
class Source:
    """Everything a summary is made from, read at one moment."""

    rows: Sequence[StoredMessage]
    previous: Sequence[Summary]

    @property
    def texts(self) -> list[str]:
        """What the summary stands for."""
        return [*(node.text for node in self.previous), *(row.content for row in self.rows)]


async def perform(ctx: Context, conv: Conversation, job: Job) -> Result:
    """Run a job to its end. Cancelling it counts as giving way to an answer, not as a failure."""
    now = ctx.clock.now()
    draft = draft_of(ctx, conv, job)
    try:
        node_id = await ctx.db.transaction(
            lambda tx: summaries.begin(tx, draft, now=now, lease_s=LEASE_S, boot_id=ctx.boot_id)
        )
    except sqlite3.IntegrityError:
        log.debug("Summarization already in progress for %s", conv.key)
        return Result.BUSY
    log.debug("Memory %d status updated to processing", node_id)
    started = ctx.clock.monotonic()
    try:
        source = await read(ctx, conv, job)
        content = await _content(ctx, job, source)
    except asyncio.CancelledError:
        ctx.preempted[conv.id, job.start_seq] = ctx.preempted.get((conv.id, job.start_seq), 0) + 1
        await asyncio.shield(_failed(ctx, node_id, "preempted", counted=False))
        raise
    except ModelError as error:
        attempts = await _failed(ctx, node_id, type(error).__name__, counted=True)
        if attempts < MAX_ATTEMPTS or job.replaces is not None:
            return Result.FAILED
        return await _stand_in(ctx, conv, job, source)
    if job.replaces is not None and content.quality == "extractive":  # no better than what is there
        await _failed(ctx, node_id, "rejected", counted=True)
        return Result.FAILED
    elapsed = int((ctx.clock.monotonic() - started) * 1000)
    content = replace(content, generation_ms=elapsed)
    landed = await ctx.db.transaction(lambda tx: commit(ctx, tx, conv, job, node_id, content))
    if not landed:
        log.debug("Memory %d status updated to superseded", node_id)
        return Result.LOST
    _log_done(conv, job, node_id, content)
    return Result.DONE


async def read(ctx: Context, conv: Conversation, job: Job) -> Source:
    """The job's messages and sources, as they are now."""
    rows: list[StoredMessage] = []
    if job.read_from is not None:
        rows = await messages.between(ctx.db, conv.id, job.read_from, job.end_seq)
    found = [await summaries.get(ctx.db, node_id) for node_id in job.sources]
    return Source(rows, [node for node in found if node is not None and job.retells])


async def commit(ctx: Context, tx: Transaction, conv: Conversation, job: Job, node_id: int, content: Content) -> bool:
    """Everything at once, if the conversation is still as it was when the job was planned; False otherwise."""
    now = ctx.clock.now()
    node = await summaries.get(tx, node_id)
    if node is None:
        return False
    if node.status != "processing" or not await _place(tx, conv, job, node_id):
        await summaries.supersede(tx, node_id, "the conversation moved on")
        return False
    await summaries.complete(tx, node_id, content, now=now)
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


def digest_content(ctx: Context, job: Job, source: Source) -> Content:
    """The same summary without a model."""
    measure = ctx.measure()
    limit = max(int(job.words[1] / WORDS_PER_TOKEN), 24)
    text = extractive.digest(
        [extractive.Said(row.role == "user", masked(row)) for row in source.rows],
        limit=limit,
        measure=measure,
        previous=" ".join(node.text for node in source.previous),
    )
    text = text or f"{len(source.rows)} messages."
    return Content(
        text=text,
        quality="extractive",
        src_count=len(source.rows) or sum(node.src_count for node in source.previous),
        src_tokens=sum(measure(text) for text in source.texts),
        tokens=measure(text),
        retention=validate.retention(text, source.texts),
        generation_ms=0,
    )


async def _content(ctx: Context, job: Job, source: Source) -> Content:
    """Ask the model, twice if need be; a text that is no summary is never stored, the digest takes its place."""
    if ctx.model.is_offline or not any(text.strip() for text in source.texts):
        return digest_content(ctx, job, source)
    for firmer in (False, True):
        try:
            return await _ask(ctx, job, source, firmer=firmer)
        except validate.Rejected as reason:
            log.info("a summary was rejected: %s", reason)
    return digest_content(ctx, job, source)


async def _ask(ctx: Context, job: Job, source: Source, *, firmer: bool) -> Content:
    measure, tuning = ctx.measure(), ctx.settings.tuning
    instruction = prompts.instructions(job.style, job.words, own=ctx.own_prompt, facts=False)
    most = max(ctx.meter.context(ctx.label, await ctx.model.context_tokens()) // 2, 128)
    lines = [prompts.Line(row.seq, _who(row), cut_middle(masked(row), most, measure)) for row in source.rows]
    text = prompts.compose(
        instruction,
        messages=prompts.transcript(lines),
        previous=[node.text for node in source.previous],
        firmer=firmer,
    )
    request = ChatRequest(
        messages=(ChatMessage("user", text),),
        max_tokens=answer_tokens(ctx, job.words[1]),
        temperature=tuning.summary_temperature,
        purpose=Purpose.MERGE if job.style == "merge" else Purpose.SUMMARIZE,
        conv_id=source.rows[0].conv_id if source.rows else source.previous[0].conv_id,
        tokens_est=measure(text),
    )
    answer = await ctx.model.complete(request)
    size = sum(measure(text) for text in source.texts)
    need = min(validate.MIN_RETENTION, 2 * job.words[1] / WORDS_PER_TOKEN / max(size, 1))
    summary = validate.shorten(answer.text.strip(), int(job.words[1] / WORDS_PER_TOKEN * SLACK), measure)
    checked = validate.check(
        summary,
        source=source.texts,
        prompt=instruction,
        source_tokens=size,
        tokens=measure(summary),
        need=need,
    )
    ctx.meter.learn(ctx.label, request.tokens_est, answer.finish.usage)
    return Content(
        text=checked.text,
        quality="merged" if job.style == "merge" else "llm",
        model=answer.finish.model,
        prompt_rev=prompts.REVISION,
        src_count=len(source.rows) or sum(node.src_count for node in source.previous),
        src_tokens=size,
        tokens=measure(checked.text),
        retention=checked.retention,
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
        return await commit(ctx, tx, conv, job, node_id, content)

    return Result.DONE if await ctx.db.transaction(body) else Result.LOST


def _who(row: StoredMessage) -> str:
    if row.role == "assistant":
        return "assistant"
    return " ".join(row.sender_name.replace(":", " ").split()) or "user"


def _log_done(conv: Conversation, job: Job, node_id: int, content: Content) -> None:
    log.debug("Memory %d status updated to completed", node_id)
    log.info(
        "Summarized messages %d-%d for %s in %dms", job.start_seq, job.end_seq, conv.key, content.generation_ms or 0
    )
    if job.style == "window" and job.start_seq > conv.epoch_start_seq:
        log.info("Sliding window: dropping seq 0-%d for %s", job.start_seq - 1, conv.key)
