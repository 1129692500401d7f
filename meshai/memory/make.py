"""The text of one summary: asked of the model and checked, or taken from the messages themselves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from meshai.llm.base import ChatMessage, ChatRequest, Purpose
from meshai.memory import extractive, prompts, validate
from meshai.memory.context import WORDS_PER_TOKEN, Context, answer_tokens
from meshai.memory.facts import from_lines, line_of, split_answer
from meshai.memory.strategies.base import Job
from meshai.memory.tokens import cut_middle
from meshai.memory.window import masked
from meshai.storage import facts, messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.facts import NewFact
from meshai.storage.messages import StoredMessage
from meshai.storage.summaries import Content, Summary

log = logging.getLogger(__name__)

MAX_PREEMPTIONS = 2
"""A range gives way to waiting answers this often, then it is finished."""
SLACK = 1.4
"""A summary may be longer than asked for by this, then it is cut."""


@dataclass(frozen=True, slots=True)
class Source:
    """Everything a summary is made from, read at one moment."""

    rows: Sequence[StoredMessage]
    previous: Sequence[Summary]

    @property
    def texts(self) -> list[str]:
        """What the summary stands for."""
        return [*(node.text for node in self.previous), *(row.content for row in self.rows)]


@dataclass(frozen=True, slots=True)
class Made:
    """A finished summary, the messages it was made from, and the facts found in them."""

    content: Content
    rows: Sequence[StoredMessage] = ()
    facts: Sequence[NewFact] = ()
    rejected: bool = False  # the model's own text was not usable


async def read(ctx: Context, conv: Conversation, job: Job) -> Source:
    """The job's messages and sources, as they are now."""
    rows: list[StoredMessage] = []
    if job.read_from is not None:
        rows = await messages.between(ctx.db, conv.id, job.read_from, job.end_seq)
    found = [await summaries.get(ctx.db, node_id) for node_id in job.sources]
    return Source(rows, [node for node in found if node is not None and job.retells])


async def made_by_model(ctx: Context, job: Job, source: Source) -> Made:
    """Ask the model, twice if need be; a text that is no summary is never stored, the digest takes its place."""
    if not ctx.model.is_offline and any(text.strip() for text in source.texts):
        for firmer in (False, True):
            try:
                return await _ask(ctx, job, source, firmer=firmer)
            except validate.Rejected as reason:
                log.info("a summary was rejected: %s", reason)
        return Made(digest_content(ctx, job, source), source.rows, rejected=True)
    return Made(digest_content(ctx, job, source), source.rows)


async def _ask(ctx: Context, job: Job, source: Source, *, firmer: bool) -> Made:
    measure = ctx.measure()
    conv_id = source.rows[0].conv_id if source.rows else source.previous[0].conv_id
    wants_facts = ctx.settings.facts and bool(source.rows)
    instruction = prompts.instructions(job.style, job.words, own=ctx.own_prompt, facts=wants_facts)
    text = prompts.compose(
        instruction,
        messages=prompts.transcript(await _lines(ctx, source)),
        previous=[node.text for node in source.previous],
        current_facts=await _corrections(ctx, conv_id) if source.previous else (),
        firmer=firmer,
    )
    request = ChatRequest(
        messages=(ChatMessage("user", text),),
        max_tokens=answer_tokens(ctx, job.words[1]),
        temperature=ctx.settings.tuning.summary_temperature,
        purpose=Purpose.MERGE if job.style == "merge" else Purpose.SUMMARIZE,
        conv_id=conv_id,
        tokens_est=measure(text),
        gives_way=ctx.preempted.get((conv_id, job.start_seq), 0) < MAX_PREEMPTIONS,
    )
    answer = await ctx.model.complete(request)
    ctx.meter.learn(ctx.label, request.tokens_est, answer.finish.usage)
    prose, lines = split_answer(answer.text)
    named = (
        any(row.sender != source.rows[0].sender for row in source.rows if row.role == "user") if source.rows else False
    )
    found = from_lines(lines, source.rows, named=named) if wants_facts else []
    summary = validate.shorten(validate.tidy(prose), int(job.words[1] / WORDS_PER_TOKEN * SLACK), measure)
    return Made(_checked(ctx, job, source, summary, instruction, found, answer.finish.model), source.rows, found)


def _checked(
    ctx: Context, job: Job, source: Source, summary: str, instruction: str, found: Sequence[NewFact], model: str
) -> Content:
    measure = ctx.measure()
    size = sum(measure(text) for text in source.texts)
    checked = validate.check(
        summary,
        source=source.texts,
        prompt=instruction,
        source_tokens=size,
        tokens=measure(summary),
        elsewhere=[f"{fact.key} {fact.value}" for fact in found],
    )
    need = min(validate.MIN_RETENTION, _possible(job) * job.words[1] / WORDS_PER_TOKEN / max(size, 1))
    if checked.retention < need and checked.retention < (digest_content(ctx, job, source).retention or 0.0):
        raise validate.Rejected(f"keeps only {checked.retention:.0%} of the names and numbers")
    return Content(
        text=checked.text,
        quality="merged" if job.style == "merge" else "llm",
        model=model,
        prompt_rev=prompts.REVISION,
        src_count=len(source.rows) or sum(node.src_count for node in source.previous),
        src_tokens=size,
        tokens=measure(checked.text),
        retention=checked.retention,
    )


def _possible(job: Job) -> float:
    """Share of the names and numbers that can be kept, in relation to how much shorter the text becomes.

    Messages are mostly filling; summaries that are merged are not.
    """
    return 0.8 if job.style == "merge" else 2.0


async def _lines(ctx: Context, source: Source) -> list[prompts.Line]:
    measure = ctx.measure()
    most = max(ctx.meter.context(ctx.label, await ctx.model.context_tokens()) // 2, 128)
    return [prompts.Line(row.seq, _who(row), cut_middle(masked(row), most, measure)) for row in source.rows]


async def _corrections(ctx: Context, conv_id: int) -> list[str]:
    """What holds now, for a model that rewrites a text which may say otherwise."""
    pairs = await facts.superseded(ctx.db, conv_id)
    return list(dict.fromkeys(line_of(new) for _, new in pairs if new.invalid_at is None))[:10]


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


def _who(row: StoredMessage) -> str:
    if row.role == "assistant":
        return "assistant"
    return " ".join(row.sender_name.replace(":", " ").split()) or "user"
