"""The operator's side: make derived data anew, take a summary back; docs/memory.md §2.3, §2.6."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from meshai.errors import CheckFailedError, EmptyAnswerError, ModelError
from meshai.llm.base import ChatMessage, ChatRequest, Purpose
from meshai.memory import jobs, learn
from meshai.memory.context import Context, look
from meshai.memory.jobs import Result
from meshai.storage import conversations, messages, search_index, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Transaction
from meshai.storage.summaries import Summary

log = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Told ``done, total, what`` in messages."""


def own_prompt(path: str) -> str:
    """The operator's summarisation prompt (S2-6); "" when there is none or it cannot be read."""
    if not path:
        return ""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        log.warning("memory.tuning.prompt_file: %s; using the built-in prompt", error)
        return ""


async def rebuild_index(ctx: Context) -> int:
    """Make both search indexes anew; returns the number of rows."""

    async def body(tx: Transaction) -> int:
        return sum([await search_index.rebuild(tx, index) for index in search_index.INDEXES])

    return await ctx.db.transaction(body)


async def check_model(ctx: Context) -> None:
    """CheckFailedError when the model does not answer: what it made before is not thrown away for nothing (P6)."""
    if ctx.model.is_offline:
        return
    question = ChatRequest(
        messages=(ChatMessage("user", "Answer with the word ready."),),
        max_tokens=16,
        temperature=0.0,
        purpose=Purpose.SUMMARIZE,
    )
    try:
        await ctx.model.complete(question)
    except EmptyAnswerError:
        log.debug("the model answers, if only with nothing")
    except ModelError as error:
        raise CheckFailedError(f"summarising is not possible now, nothing was changed: {error}") from error


async def rebuild_facts(ctx: Context, conv: Conversation) -> int:
    """Learn the epoch's facts anew by pattern; what a person asked for or took back stays as it is."""

    async def clear(tx: Transaction) -> None:
        await tx.execute(
            "DELETE FROM facts WHERE conv_id = ? AND epoch = ? AND origin <> 'user'"
            " AND (invalid_at IS NULL OR superseded_by IS NOT NULL)",
            (conv.id, conv.epoch),
        )
        await tx.execute(
            "UPDATE conversations SET facts_upto_seq = epoch_start_seq, prefix_rev = prefix_rev + 1 WHERE id = ?",
            (conv.id,),
        )

    await ctx.db.transaction(clear)
    count = 0
    while True:
        before = await conversations.load(ctx.db, conv.id)
        if before.facts_upto_seq >= before.next_seq:
            return count
        count += await ctx.db.transaction(lambda tx: learn.harvest(tx, conv.id, now=ctx.clock.now()))
        after = await conversations.load(ctx.db, conv.id)
        if after.facts_upto_seq == before.facts_upto_seq:
            return count


async def rebuild_summaries(ctx: Context, conv: Conversation, progress: Progress) -> int:
    """Summarise the epoch anew from the archive, in parts the model can read; returns the number of calls.

    Raises CheckFailedError when the model fails: what is not summarised by then is raw, nothing is lost.
    """
    await ctx.db.transaction(lambda tx: _unsummarise(tx, conv.id))
    total = await messages.count_epoch(ctx.db, conv.id)
    calls = 0
    while True:
        current = await conversations.load(ctx.db, conv.id)
        if current.epoch != conv.epoch:
            return calls
        seen = await look(ctx, current)
        progress(max(total - len(seen.view.window), 0), total, current.key)
        job = ctx.strategy.merge(seen.view, seen.rules) or ctx.strategy.plan(seen.view, seen.rules)
        if job is None:
            progress(total, total, current.key)
            return calls
        result = await jobs.perform(ctx, current, job)
        calls += 1
        if result is not Result.DONE:
            raise CheckFailedError(f"{current.key}: summarising {job.start_seq}-{job.end_seq} {result}")


async def rollback(ctx: Context, conv_id: int, summary_id: int | None = None) -> Summary:
    """Take the newest summary (or this one) back: its earlier version, its sources or its messages are in force again.

    Returns the summary taken back; raises CheckFailedError when that is not possible.
    """

    async def body(tx: Transaction) -> Summary:
        conv = await conversations.load(tx, conv_id)
        chain = await summaries.chain(tx, conv_id, conv.epoch)
        node = _pick(chain, summary_id)
        if node.replaces_id is not None and await summaries.get(tx, node.replaces_id) is not None:
            await _restore_version(tx, node)
        else:
            await _undo(tx, conv, node)
        await conversations.touch_prefix(tx, conv_id)
        return node

    node = await ctx.db.transaction(body)
    log.info("rolled back summary %d (messages %d-%d)", node.id, node.start_seq, node.end_seq)
    return node


def _pick(chain: list[Summary], summary_id: int | None) -> Summary:
    if not chain:
        raise CheckFailedError("there is no summary to roll back")
    if summary_id is None:
        return max(chain, key=lambda node: (node.completed_at or 0, node.id))
    found = next((node for node in chain if node.id == summary_id), None)
    if found is None:
        raise CheckFailedError(f"summary {summary_id} is not in force")
    return found


async def _restore_version(tx: Transaction, node: Summary) -> None:
    old = node.replaces_id
    assert old is not None
    kept = tuple(child.id for child in await summaries.children(tx, node.id))
    await summaries.supersede(tx, node.id, "rolled back")
    await summaries.adopt(tx, old, kept)
    await tx.execute(
        "UPDATE summaries SET status = 'completed', parent_id = NULL, error = '' WHERE id = ? AND text <> ''", (old,)
    )


async def _undo(tx: Transaction, conv: Conversation, node: Summary) -> None:
    """Sources are active again; messages it read beyond them are raw again, which only the last node's may become."""
    children = await summaries.children(tx, node.id)
    covered = max((child.end_seq for child in children), default=node.start_seq - 1)
    if covered < node.end_seq and node.end_seq != conv.anchor_seq - 1:
        raise CheckFailedError(f"summary {node.id} is not the last one: roll back the later ones first")
    await summaries.supersede(tx, node.id, "rolled back")
    await summaries.adopt(tx, None, tuple(child.id for child in children))
    if covered < node.end_seq:
        moved = await conversations.move_anchor(
            tx, conv.id, epoch=conv.epoch, old=conv.anchor_seq, new=max(covered + 1, conv.epoch_start_seq)
        )
        assert moved


async def _unsummarise(tx: Transaction, conv_id: int) -> None:
    conv = await conversations.load(tx, conv_id)
    running = await summaries.running(tx, conv_id)
    if running is not None:
        await summaries.supersede(tx, running.id, "rebuild")
    for node in await summaries.chain(tx, conv_id, conv.epoch):
        await summaries.supersede(tx, node.id, "rebuild")
    await tx.execute(
        "UPDATE conversations SET anchor_seq = epoch_start_seq, prefix_rev = prefix_rev + 1 WHERE id = ?", (conv_id,)
    )
