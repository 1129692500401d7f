"""The memory as the rest of the program sees it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from meshai.clock import Clock
from meshai.config.model import Memory as MemorySettings
from meshai.llm.base import ChatModel, Recalled, Usage
from meshai.memory import strategies
from meshai.memory.assemble import Ask, Material, Prompt, Snippet, assemble
from meshai.memory.compact import Compactor
from meshai.memory.context import Context
from meshai.memory.jobs import MAX_PREEMPTIONS, Result
from meshai.memory.meter import Meter
from meshai.memory.search import search
from meshai.memory.tokens import least_estimate
from meshai.memory.worker import Worker
from meshai.storage import conversations, messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Database, Transaction
from meshai.storage.messages import StoredMessage

log = logging.getLogger(__name__)

WINDOW_ROWS = 400
"""Newest raw rows read for a prompt; no budget shows more."""
SNIPPETS = 10
"""Most recalled turns in a prompt: more mislead small models (docs/memory.md §2.8)."""


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """A conversation's memory for ``!memory`` and ``!status`` (S3-22)."""

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
    compactions: int = 0


class Memory:
    """Prompts out of an archive, and what keeps them small.

    ``model`` answers and, unless ``summariser`` is given, summarises; ``parallel`` is ``llm.parallel``.
    """

    def __init__(
        self,
        db: Database,
        settings: MemorySettings,
        model: ChatModel,
        clock: Clock,
        *,
        boot_id: str,
        parallel: int = 1,
        summariser: ChatModel | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._db = db
        self._clock = clock
        self._model = model
        self._ctx = Context(
            db=db,
            settings=settings,
            model=summariser or model,
            clock=clock,
            boot_id=boot_id,
            strategy=strategies.make(settings.strategy),
            meter=meter or Meter(settings, clock),
            parallel=parallel,
        )
        self._compactor = Compactor(self._ctx)
        self._worker = Worker(self._step, clock, parallel=parallel)

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Repair what an interrupted run left, load what was learned, and begin background work."""
        now = self._clock.now()
        broken = await self._db.transaction(lambda tx: summaries.repair(tx, self._ctx.boot_id, now))
        if broken:
            log.info("memory: %d interrupted summaries will be made again", broken)
        await self._ctx.meter.load(self._db)
        for conv in await conversations.everyone(self._db):
            self._worker.schedule(conv.id, self._ctx.settings.idle_s)
        self._worker.start()

    async def stop(self) -> None:
        """Cancel background work; nothing is left half-done."""
        await self._worker.stop()
        await self._ctx.meter.save(self._db)

    def reconfigure(self, settings: MemorySettings) -> None:
        """Take changed settings over (SIGHUP); a new strategy goes on with the summaries there are."""
        self._ctx.settings = settings
        self._ctx.meter.reconfigure(settings)
        if settings.strategy != self._ctx.strategy.name:
            self._ctx.strategy = strategies.make(settings.strategy)

    # --- the way to an answer -----------------------------------------------------------------------------------

    async def prompt(self, ask: Ask) -> Prompt:
        """The prompt for a question: never beyond the budget, no model call (P3, P5)."""
        meter = self._ctx.meter
        measure = meter.measure(ask.model)
        budget = meter.budget(ask.model, context_tokens=ask.context_tokens, reply_tokens=ask.reply_tokens)
        conv = None if ask.conv_id is None else await conversations.get(self._db, ask.conv_id)
        material = Material()
        if conv is not None:
            self._ctx.budget = budget
            self._ctx.other_tokens = measure(ask.system)
            material = await self._material(conv, ask)
        prompt = assemble(ask, material, budget, measure)
        meter.remember(prompt.tokens_est, sum(least_estimate(message.content) for message in prompt.messages))
        if conv is not None:
            log.debug(
                "Using summary + %d recent messages (total history: %d)",
                prompt.window,
                conv.next_seq - conv.epoch_start_seq,
            )
            if prompt.window_left_out:
                self._worker.schedule(conv.id, 0.0)
        return prompt

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Around the model call of an answer: background calls give way if ``parallel`` leaves no slot."""
        with self._worker.answering(self._may_interrupt):
            yield

    def note_exchange(self, conv_id: int) -> None:
        """An exchange was stored: consider compaction once the conversation has been quiet."""
        self._worker.schedule(conv_id, self._ctx.settings.idle_s)

    def learn_usage(self, model: str, tokens_est: int, usage: Usage) -> None:
        """Calibrate by what the server counted for a prompt of this estimate."""
        self._ctx.meter.learn(model, tokens_est, usage)

    def learn_context(self, model: str, context_tokens: int | None) -> None:
        """The server refused a prompt as too long: the next ``prompt`` is smaller."""
        self._ctx.meter.learn_context(model, context_tokens)

    # --- commands -----------------------------------------------------------------------------------------------

    async def reset(self, tx: Transaction, conv_id: int, now: float) -> int:
        """Begin a new epoch; returns how many of the user's and the bot's messages are hidden by it (S0-20)."""
        count = await messages.count_epoch(tx, conv_id)
        await conversations.new_epoch(tx, conv_id)
        await tx.execute("UPDATE conversations SET last_active = ? WHERE id = ?", (now, conv_id))
        tx.after_commit(lambda: self._worker.forget(conv_id))
        return count

    async def status(self, conv_id: int) -> MemoryStatus:
        """The figures of a conversation."""
        conv = await conversations.load(self._db, conv_id)
        chain = await summaries.chain(self._db, conv_id, conv.epoch)
        total = await messages.count_epoch(self._db, conv_id)
        raw = await self._db.fetch_value(
            f"SELECT count(*) FROM messages WHERE conv_id = ? AND seq >= ? AND {messages.IS_TALK}",
            (conv_id, conv.anchor_seq),
        )
        failed = await summaries.last_failure(self._db, conv_id)
        return MemoryStatus(
            enabled=self._is_on(conv),
            strategy=self._ctx.strategy.name,
            compact_every=conv.compact_every or self._ctx.settings.compact_every,
            messages=total,
            archived=total - int(raw),
            since_last=int(raw),
            summaries=len(chain),
            max_level=max((node.level for node in chain), default=0),
            facts=0,
            last_failure=failed.error if failed else "",
            extractive=sum(node.quality == "extractive" for node in chain),
        )

    async def recall(self, conv_id: int, question: str, *, limit: int = SNIPPETS) -> list[Recalled]:
        """Earlier messages that fit the words, best first; works without a model."""
        conv = await conversations.get(self._db, conv_id)
        if conv is None:
            return []
        hits = await search(self._db, conv_id=conv_id, epoch=conv.epoch, question=question, limit=limit)
        return [Recalled(hit.created_at, hit.sender_name or hit.role, hit.content) for hit in hits]

    # --- background ---------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Do all background work now, whatever the idle rule says, until nothing is due."""
        while await self._worker.run_due(now=float("inf")):
            pass

    async def _step(self, conv_id: int) -> bool:
        return await self._compactor.step(conv_id) is Result.DONE

    def _may_interrupt(self, conv_id: int) -> bool:
        given_way = sum(count for (conv, _), count in self._ctx.preempted.items() if conv == conv_id)
        return given_way < MAX_PREEMPTIONS

    def _is_on(self, conv: Conversation) -> bool:
        return self._ctx.settings.enabled and conv.memory_enabled

    async def _material(self, conv: Conversation, ask: Ask) -> Material:
        named = conv.kind == "channel"
        if not self._is_on(conv):
            rows = await self._rows(conv, ask, first=conv.epoch_start_seq, limit=self._ctx.settings.window_pairs * 2)
            return Material(window=rows, named=named, window_pairs=self._ctx.settings.window_pairs)
        rows = await self._rows(conv, ask, first=conv.anchor_seq, limit=WINDOW_ROWS)
        if await self._too_much(conv, ask, rows):
            conv = await conversations.load(self._db, conv.id)
            rows = await self._rows(conv, ask, first=conv.anchor_seq, limit=WINDOW_ROWS)
        chain = await summaries.chain(self._db, conv.id, conv.epoch)
        return Material(
            chain=[node.text for node in chain],
            window=rows,
            recalled=await self._recalled(conv, ask),
            named=named,
            window_pairs=self._ctx.settings.window_pairs,
        )

    async def _too_much(self, conv: Conversation, ask: Ask, rows: list[StoredMessage]) -> bool:
        """Digest a full window on the spot (S2-16); True when that changed it."""
        questions = [row.seq for row in await self._questions(ask)]
        return len(rows) > 1 and await self._compactor.hard(conv, questions)

    async def _rows(self, conv: Conversation, ask: Ask, *, first: int, limit: int) -> list[StoredMessage]:
        rows = await messages.newest(self._db, conv.id, first, limit=limit + len(ask.message_ids))
        return [row for row in rows if row.id not in ask.message_ids]

    async def _questions(self, ask: Ask) -> list[StoredMessage]:
        found = [await messages.get(self._db, message_id) for message_id in ask.message_ids]
        return [row for row in found if row is not None]

    async def _recalled(self, conv: Conversation, ask: Ask) -> list[Snippet]:
        if not self._ctx.settings.recall or conv.anchor_seq <= conv.epoch_start_seq:
            return []
        hits = await search(
            self._db,
            conv_id=conv.id,
            epoch=conv.epoch,
            question=ask.question,
            asker=conv.node_id,
            exclude_from_seq=conv.anchor_seq,
            limit=SNIPPETS,
            now=self._clock.now(),
            gated=True,
        )
        return [
            Snippet(hit.message_id, hit.seq, hit.sender_name or hit.role, hit.created_at, hit.content) for hit in hits
        ]


__all__ = ["Ask", "Memory", "MemoryStatus", "Prompt"]
