"""The memory as the rest of the program sees it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from meshai.clock import Clock
from meshai.config.model import Memory as MemorySettings
from meshai.errors import StorageError
from meshai.llm.base import ChatModel, Recalled, Usage
from meshai.memory import archive, care, erase, learn, strategies, verify
from meshai.memory.assemble import Ask, Prompt, assemble
from meshai.memory.buffer import Buffer, Held
from meshai.memory.care import Progress
from meshai.memory.compact import Compactor
from meshai.memory.context import Context, look
from meshai.memory.facts import asked_for, line_of
from meshai.memory.housekeeping import Housekeeper
from meshai.memory.jobs import Result
from meshai.memory.make import MAX_PREEMPTIONS
from meshai.memory.meter import Meter
from meshai.memory.reading import SNIPPETS, Reader
from meshai.memory.search import search
from meshai.memory.status import MemoryStatus, status_of
from meshai.memory.tokens import estimate, least_estimate
from meshai.memory.worker import Worker
from meshai.storage import conversations, facts, messages, summaries
from meshai.storage.database import Database, Transaction
from meshai.storage.facts import Fact
from meshai.storage.summaries import Summary

log = logging.getLogger(__name__)


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
        self._buffer = Buffer()
        self._compactor = Compactor(self._ctx)
        self._reader = Reader(self._ctx, self._compactor, self._buffer)
        self._worker = Worker(self._step, clock, parallel=parallel)
        self._keeper = Housekeeper(self._ctx)
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Repair what an interrupted run left, load what was learned, and begin background work."""
        now = self._clock.now()
        broken = await self._db.transaction(lambda tx: summaries.repair(tx, self._ctx.boot_id, now))
        if broken:
            log.info("memory: %d interrupted summaries will be made again", broken)
        await self._ctx.meter.load(self._db)
        self._ctx.own_prompt = await asyncio.to_thread(care.own_prompt, self._ctx.settings.tuning.prompt_file)
        for conv in await conversations.everyone(self._db):
            self._worker.schedule(conv.id, self._ctx.settings.idle_s)
        self._worker.start()
        self._spawn(self._keeper.run())

    async def stop(self) -> None:
        """Cancel background work; nothing is left half-done."""
        await self._worker.stop()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        with contextlib.suppress(StorageError):
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
        conv, material = await self._reader.material(ask, budget)
        prompt = assemble(ask, material, budget, measure)
        meter.remember(
            prompt.tokens_est, ask.model, sum(least_estimate(message.content) for message in prompt.messages)
        )
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
        """An exchange was stored: learn its facts soon, consider compaction once the conversation has been quiet."""
        self._worker.schedule(conv_id, self._ctx.settings.idle_s)
        if self._ctx.settings.facts:
            self._spawn(self._harvest(conv_id))
        if self._ctx.meter.is_due:
            self._spawn(self._save_learned())

    def learn_usage(self, model: str, tokens_est: int, usage: Usage) -> None:
        """Calibrate by what the server counted for a prompt of this estimate."""
        self._ctx.meter.learn(model, tokens_est, usage)

    def learn_context(self, model: str, context_tokens: int | None) -> None:
        """The server refused a prompt as too long: the next ``prompt`` is smaller."""
        self._ctx.meter.learn_context(model, context_tokens)

    # --- while the database takes nothing -----------------------------------------------------------------------

    def hold(self, message: Held, error: StorageError) -> None:
        """Keep in RAM what could not be stored; stored as soon as the database takes it. One log line an hour."""
        self._buffer.complain(error, self._clock.monotonic())
        self._buffer.hold(message)

    @property
    def unsaved(self) -> int:
        """Messages held in RAM: while there are any, answers end with "(not saved)"."""
        return len(self._buffer)

    async def flush(self) -> bool:
        """Try to store what is held; True when nothing is left. Call it before every write, and once a minute."""
        return await self._buffer.flush(self._db, self._clock.monotonic())

    # --- commands of the person ---------------------------------------------------------------------------------

    async def reset(self, tx: Transaction, conv_id: int, now: float) -> int:
        """Begin a new epoch; returns how many of the user's and the bot's messages are hidden by it (S0-20)."""
        count = await messages.count_epoch(tx, conv_id)
        await facts.end_epoch(tx, conv_id, now=now)
        await conversations.new_epoch(tx, conv_id)
        await tx.execute("UPDATE conversations SET last_active = ? WHERE id = ?", (now, conv_id))
        tx.after_commit(lambda: self._worker.forget(conv_id))
        return count

    async def forget_all(self, tx: Transaction, conv_id: int, now: float) -> int:
        """Erase everything of a conversation for good; returns the number of messages.

        The file is cleaned after the commit, and again at the next start if that was cut short.
        """
        conv = await conversations.load(tx, conv_id)
        count = await erase.erase(tx, conv_id, now=now)
        self._buffer.drop(conv.key)
        estimate.cache_clear()

        def after() -> None:
            self._worker.forget(conv_id)
            self._spawn(self._keeper.finish_erasure())

        tx.after_commit(after)
        return count

    async def finish_erasure(self) -> bool:
        """Clean indexes, log and copies now; False while another process holds the log."""
        return await self._keeper.finish_erasure(attempts=1)

    async def set_enabled(self, tx: Transaction, conv_id: int, *, enabled: bool) -> None:
        """``!memory on|off``: the data stays (S3-23)."""
        await conversations.set_memory(tx, conv_id, enabled=enabled)

    async def set_compact_every(self, tx: Transaction, conv_id: int, turns: int | None) -> None:
        """``!memory every N``: 1..500 user turns (ValueError otherwise); None: the configured rule."""
        if turns is not None and not 1 <= turns <= 500:
            raise ValueError("1 to 500")
        await conversations.set_compact_every(tx, conv_id, turns)

    async def remember(self, tx: Transaction, conv_id: int, text: str, *, message_id: int, now: float) -> Fact | None:
        """``!remember TEXT`` of a stored message: a pinned fact that outlives ``!reset``; None if it says nothing."""
        row = await messages.get(tx, message_id)
        conv = await conversations.load(tx, conv_id)
        new = asked_for(text, row, subject=learn.subject_of(conv, row)) if row is not None else None
        if new is None:
            return None
        fact_id = await facts.add(tx, conv_id, conv.epoch, new, now=now)
        if fact_id is None:
            return next((fact for fact in await facts.current(tx, conv_id) if fact.hash == new.hash), None)
        return await facts.get(tx, fact_id)

    async def facts(self, conv_id: int) -> list[Fact]:
        """What is known now; ``!forget N`` counts this list from 1."""
        if self._ctx.settings.facts:
            await self._harvest(conv_id)
        return await facts.current(self._db, conv_id)

    async def forget_fact(self, tx: Transaction, conv_id: int, number: int, now: float) -> Fact | None:
        """``!forget N``: the N-th fact of the list (from 1) holds no longer; None when there is no such fact."""
        known = await facts.current(tx, conv_id)
        if not 1 <= number <= len(known):
            return None
        fact = known[number - 1]
        await facts.invalidate(tx, fact.id, now=now)
        await conversations.touch_prefix(tx, conv_id)
        return fact

    @staticmethod
    def fact_line(fact: Fact) -> str:
        """A fact as a person reads it."""
        return line_of(fact)

    async def status(self, conv_id: int) -> MemoryStatus:
        """The figures of a conversation."""
        return await status_of(self._ctx, conv_id)

    async def summary_text(self, conv_id: int) -> str:
        """``!summary``: what the model is told of the time before the window; "" when there is nothing."""
        conv = await conversations.load(self._db, conv_id)
        return " ".join(node.text for node in await summaries.chain(self._db, conv_id, conv.epoch))

    async def compact_now(self, conv_id: int) -> str:
        """``!compact``: digest what is older than the window's pairs at once, whatever idle rule or backoff say.

        The model betters it right after. Returns a sentence for the person, also when nothing can be stored.
        """
        try:
            conv = await conversations.load(self._db, conv_id)
            if not (self._ctx.settings.enabled and conv.memory_enabled):
                return "Memory is off here. !memory on switches it on."
            seen = await look(self._ctx, conv)
            before = await self.status(conv_id)
            done = await self._compactor.digest(seen, pairs=True)
            after = await self.status(conv_id)
        except StorageError as error:
            self._buffer.complain(error, self._clock.monotonic())
            return "Could not compact: nothing can be stored right now."
        if not done:
            return f"Nothing to compact: only {before.since_last} recent messages."
        self._worker.schedule(conv_id, 0.0, manual=True)
        return f"Compacted {after.archived - before.archived} messages; {after.since_last} stay word for word."

    async def recall(
        self, conv_id: int, question: str, *, limit: int = SNIPPETS, people_only: bool = False
    ) -> list[Recalled]:
        """Earlier messages that fit the words, best first; ``people_only`` leaves the bot's own out. Needs no model."""
        conv = await conversations.get(self._db, conv_id)
        if conv is None:
            return []
        hits = await search(
            self._db, conv_id=conv_id, epoch=conv.epoch, question=question, asker=conv.node_id,
            limit=3 * limit if people_only else limit,
        )  # fmt: skip
        wanted = [hit for hit in hits if hit.role == "user" or not people_only][:limit]
        return [Recalled(hit.created_at, hit.sender_name or hit.role, hit.content) for hit in wanted]

    # --- the operator -------------------------------------------------------------------------------------------

    async def verify(self) -> list[verify.Problem]:
        """Every broken invariant of the database; empty when all is well (docs/memory.md §5)."""
        return await verify.check(
            self._db,
            now=self._clock.now(),
            boot_id=self._ctx.boot_id,
            retention=bool(self._ctx.settings.retention_days),
        )

    async def rebuild(self, conv_ids: list[int] | None = None, *, progress: Progress = lambda *_: None) -> int:
        """Make summaries, facts and indexes anew from the archive; returns the number of model calls.

        Raises CheckFailedError when the model fails: one that does not answer at all changes nothing, one that fails
        on the way leaves messages raw.
        """
        await care.rebuild_index(self._ctx)
        await care.check_model(self._ctx)
        calls = 0
        for conv in await conversations.everyone(self._db):
            if conv_ids is not None and conv.id not in conv_ids:
                continue
            if self._ctx.settings.facts:
                await care.rebuild_facts(self._ctx, conv)
            calls += await care.rebuild_summaries(self._ctx, conv, progress)
        return calls

    async def rollback(self, conv_id: int, summary_id: int | None = None) -> Summary:
        """Take the newest summary (or this one) back; CheckFailedError when that cannot be done."""
        return await care.rollback(self._ctx, conv_id, summary_id)

    async def export(self, conv_ids: list[int] | None = None) -> dict[str, Any]:
        """The archive as JSON values (docs/memory.md §7)."""
        return await archive.export(self._db, conv_ids, now=self._clock.now())

    async def restore(self, data: object) -> archive.Imported:
        """Take an export in; UsageError for what is none, conversations that have messages already are left alone."""
        return await self._db.transaction(lambda tx: archive.restore(tx, data))

    # --- background ---------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Do all background work now, whatever the idle rule says, until nothing is due."""
        while self._tasks - {self._keeper.task}:
            await asyncio.gather(*(self._tasks - {self._keeper.task}), return_exceptions=True)
        while await self._worker.run_due(now=float("inf")):
            pass

    async def _step(self, conv_id: int, manual: bool) -> bool:
        if len(self._buffer) and not await self.flush():
            return False
        result = await self._compactor.step(conv_id, manual=manual)
        if result is Result.PREEMPTED:
            self._worker.schedule(conv_id, 1.0)
        return result is Result.DONE

    async def _harvest(self, conv_id: int) -> None:
        now = self._clock.now()
        try:
            conv = await conversations.get(self._db, conv_id)
            if conv is not None and conv.memory_enabled and conv.facts_upto_seq < conv.next_seq:
                await self._db.transaction(lambda tx: learn.harvest(tx, conv_id, now=now))
        except StorageError as error:
            self._buffer.complain(error, self._clock.monotonic())

    async def _save_learned(self) -> None:
        try:
            await self._ctx.meter.save(self._db)
        except StorageError as error:
            self._buffer.complain(error, self._clock.monotonic())

    def _may_interrupt(self, conv_id: int) -> bool:
        given_way = sum(count for (conv, _), count in self._ctx.preempted.items() if conv == conv_id)
        return given_way < MAX_PREEMPTIONS

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


__all__ = ["Ask", "Held", "Memory", "MemoryStatus", "Prompt"]
