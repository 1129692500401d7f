"""One answer, from the stored question to committed packets.

Every failure the person can notice is said in one short packet; nothing canned is stored as conversation
(DESIGN §3 Failures).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import cast

from meshai.clock import Clock
from meshai.commands.target import address, threads_on
from meshai.config.model import Settings
from meshai.conversation import persona
from meshai.conversation.disclosure import Disclosure
from meshai.conversation.distress import is_distress
from meshai.conversation.notices import Notices
from meshai.conversation.responder import Turn
from meshai.delivery import writer as answer_writer
from meshai.delivery.governor import Allowance, Governor
from meshai.delivery.outbox import Answer, Committed, Outbox
from meshai.delivery.writer import AnswerWriter
from meshai.errors import ContextTooLongError, EmptyAnswerError, ModelError, StorageError
from meshai.inbox import Question
from meshai.llm.base import ChatModel, ChatRequest, Delta, Finish
from meshai.memory.memory import Ask, Memory, Prompt
from meshai.storage import answers, conversations, inbound, messages, outbound
from meshai.storage.answers import AnswerRow
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

DEADLINE_S = 180.0
"""A question has so long in all, endpoints and retries included (DESIGN §3 Times)."""
THINKING = "👀"
CONTINUE = "Go on with your last answer exactly where it broke off. Do not repeat anything."
BYTES_PER_TOKEN = 3
"""Fewer than any script needs on average: an answer of full length is never cut by its own token limit."""
REPLY_SPARE_TOKENS = 20
QUOTE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What an answer may use, decided before the model is asked."""

    parts: int
    max_tokens: int
    deadline: float  # monotonic


class Exchange:
    """Makes and commits answers; ``answer`` is what the responder calls."""

    def __init__(
        self,
        db: Database,
        settings: Callable[[], Settings],
        clock: Clock,
        *,
        memory: Memory,
        model: ChatModel,
        outbox: Outbox,
        governor: Governor,
        notices: Notices,
    ) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock
        self._memory = memory
        self._model = model
        self._outbox = outbox
        self._governor = governor
        self._notices = notices
        self._disclosure = Disclosure(settings, model)
        self._begun: set[asyncio.Task[None]] = set()

    async def answer(self, turn: Turn) -> None:
        """Answer the turn's questions together. May be cancelled, and called again with one more question."""
        self._note_begun(turn)
        await self._distress(turn)
        wait_s = self._settings().reply.burst_wait_s
        if wait_s:
            await self._clock.sleep(wait_s)
        allowance = await self._allowance(turn)
        if allowance.parts == 0 and turn.resumes is None:
            await self._notices.budget_spent(turn, allowance.again_in_s)
            return
        nod = asyncio.get_running_loop().create_task(self._nod(turn))
        try:
            with self._memory.answering():
                await self._ask(turn, self._plan(allowance))
        except ModelError as error:
            log.warning("no answer for %s: %s", turn.last.person.node_id, error)
            await self._notices.model_failed(turn, error)
        except (StorageError, asyncio.CancelledError):
            raise
        except Exception:  # a bug of ours must not leave a person without any answer
            log.exception("answering %s failed", turn.last.person.node_id)
            await self._notices.broken(turn)
        finally:
            nod.cancel()
            await asyncio.gather(nod, return_exceptions=True)  # our own cancellation still gets through

    async def close_broken(self, questions: Sequence[Question], row: AnswerRow) -> None:
        """Close an answer that a restart broke too long ago to go on: one part says so, what was sent is stored."""
        writer = await answer_writer.resume(self._outbox, self._db, row)
        turn = Turn([*questions], resumes=row)
        await self._finish(turn, writer, Finish(), writer.close(), note=answer_writer.CUT_BY_RESTART)

    def _note_begun(self, turn: Turn) -> None:
        """Store that the questions are being answered while the prompt is made: the model need not wait for a disk.

        Later transactions come after it; and a restart resumes "received" and "answering" alike.
        """
        task = asyncio.get_running_loop().create_task(self._db.transaction(partial(self._begin, [*turn.questions])))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        task.add_done_callback(_log_failure)

    async def _begin(self, questions: list[Question], tx: Transaction) -> None:
        for question in questions:
            await inbound.set_state(tx, question.inbound_id, "answering", now=self._clock.now())

    async def _distress(self, turn: Turn) -> None:
        bot = self._settings().bot
        if not turn.warned and any(is_distress(question.route.text, bot.distress_words) for question in turn.questions):
            turn.warned = True
            await self._notices.distress(turn.last, bot.distress_text)

    async def _nod(self, turn: Turn) -> None:
        """One tapback on a question whose answer is slow: the person knows it was heard."""
        after_s = self._settings().reply.thinking_after_s
        if not after_s or turn.nodded or turn.last.channel is not None:
            return
        await self._clock.sleep(after_s)
        if turn.settled:
            return
        turn.nodded = True
        question = turn.last
        answer = Answer(
            address(question),
            THINKING,
            "tapback",
            question.person.conv_id,
            question.inbound_id,
            question.packet_id,
            question.hops,
        )
        await self._db.transaction(lambda tx: self._outbox.tapback(tx, answer))

    async def _allowance(self, turn: Turn) -> Allowance:
        if turn.last.channel is not None or turn.last.brief:
            return Allowance(1)
        return self._governor.allowance(
            hops=turn.last.hops,
            snr=turn.last.snr,
            max_parts=self._settings().reply.max_parts,
            queued_ms=await outbound.queued_airtime_ms(self._db),
        )

    def _plan(self, allowance: Allowance) -> Plan:
        settings = self._settings()
        parts = max(1, allowance.parts)
        max_tokens = settings.llm.max_tokens or settings.reply.max_bytes * parts // BYTES_PER_TOKEN + REPLY_SPARE_TOKENS
        return Plan(parts, max_tokens, self._clock.monotonic() + DEADLINE_S)

    async def _ask(self, turn: Turn, plan: Plan) -> None:
        try:
            await self._attempt(turn, plan)
        except ContextTooLongError as error:
            if turn.settled:
                raise
            self._memory.learn_context(self._model.label, error.context_tokens)
            await self._attempt(turn, plan)

    async def _attempt(self, turn: Turn, plan: Plan) -> None:
        started = self._clock.monotonic()
        prompt = await self._prompt(turn, plan)
        writer = await self._writer(turn, plan)
        try:
            finish = await self._stream(turn, plan, prompt, writer)
            text = writer.close(truncated=finish.truncated)
            if not text:
                raise EmptyAnswerError("nothing but white space and markup")
        except ModelError as error:
            if not writer.committed:
                raise
            log.warning("the answer for %s broke off: %s", turn.last.person.node_id, error)
            await self._finish(turn, writer, Finish(), writer.close(), note=answer_writer.BROKEN_OFF)
            return
        except asyncio.CancelledError:
            if turn.stopped and writer.committed:
                await self._db.transaction(lambda tx: self._stop(tx, turn, writer))
            raise
        finally:
            if not writer.committed:
                writer.abandon()
        committed = await self._finish(turn, writer, finish, text)
        self._log(turn, prompt, finish, committed, self._clock.monotonic() - started)
        self._memory.learn_usage(finish.model or self._model.label, prompt.tokens_est, finish.usage)
        if turn.last.person.conv_id is not None:
            self._memory.note_exchange(turn.last.person.conv_id)

    async def _prompt(self, turn: Turn, plan: Plan) -> Prompt:
        settings = self._settings()
        person = turn.last.person
        notes = persona.notes(
            person, now=self._clock.now(), max_bytes=settings.reply.max_bytes, parts=plan.parts
        ) + await self._quoted(turn)
        return await self._memory.prompt(
            Ask(
                conv_id=person.conv_id,
                system=persona.system_prompt(settings),
                notes=notes,
                question=self._text(turn),
                message_ids=() if turn.continues else tuple(q.message_id for q in turn.questions if q.message_id),
                reply_tokens=plan.max_tokens,
                context_tokens=await self._model.context_tokens(),
                model=self._model.label,
            )
        )

    async def _quoted(self, turn: Turn) -> tuple[str, ...]:
        """A reply to a message of the bot puts that message in the model's view."""
        if turn.last.reply_id is None or turn.last.person.conv_id is None:
            return ()
        message_id = await answers.message_of_packet(self._db, turn.last.person.node_id, turn.last.reply_id)
        quoted = await messages.get(self._db, message_id) if message_id is not None else None
        if quoted is None or quoted.conv_id != turn.last.person.conv_id:
            return ()
        return (f"replying to your message: {' '.join(quoted.content.split())[:QUOTE_CHARS]}",)

    @staticmethod
    def _text(turn: Turn) -> str:
        if turn.continues is not None:
            return CONTINUE
        return "\n".join(question.route.text for question in turn.questions)

    async def _writer(self, turn: Turn, plan: Plan) -> AnswerWriter:
        if turn.resumes is not None:
            return await answer_writer.resume(self._outbox, self._db, turn.resumes)
        question = turn.last
        answer = Answer(
            to=address(question),
            text="",
            kind="answer" if turn.continues is None else "more",
            conv_id=question.person.conv_id,
            inbound_id=question.inbound_id,
            reply_id=threads_on(question),
            hops_used=question.hops,
            asked_at=question.received_at,
            max_parts=plan.parts,
        )
        return await answer_writer.begin(self._outbox, self._db, answer)

    async def _stream(self, turn: Turn, plan: Plan, prompt: Prompt, writer: AnswerWriter) -> Finish:
        request = ChatRequest(
            messages=prompt.messages,
            max_tokens=plan.max_tokens,
            temperature=self._settings().llm.temperature,
            question=self._text(turn),
            conv_id=turn.last.person.conv_id or 0,
            deadline_s=max(1.0, plan.deadline - self._clock.monotonic()),
            inbound_id=turn.last.inbound_id,
            tokens_est=prompt.tokens_est,
        )
        finish = Finish()
        async with aclosing(cast("AsyncGenerator[Delta]", self._model.stream(request))) as deltas:
            async for delta in deltas:
                finish = delta.finish or finish
                if writer.add(delta.text):
                    turn.settled = True
                    await self._db.transaction(lambda tx: self._commit_ready(tx, turn, writer))
        return finish

    async def _commit_ready(self, tx: Transaction, turn: Turn, writer: AnswerWriter) -> None:
        """Commit final parts. All questions point at their answer: a restart takes them up together, as one turn."""
        await writer.commit_ready(tx)
        if writer.answer_id is None and len(turn.questions) > 1:
            earlier = [question.inbound_id for question in turn.questions[:-1]]
            await inbound.join(tx, earlier, turn.last.inbound_id)

    async def _finish(
        self, turn: Turn, writer: AnswerWriter, finish: Finish, text: str, *, note: str = ""
    ) -> Committed:
        """The last part, the assistant's row and the questions' state: one transaction."""
        turn.settled = True

        async def body(tx: Transaction) -> Committed:
            message_id = await self._store(tx, turn, text)
            if turn.continues is None and not note:
                await self._disclose(tx, turn, writer)
            committed = await writer.finish(tx, truncated=finish.truncated, note=note, message_id=message_id)
            await self._answered(tx, turn, committed.answer_id, "broken off" if note else "")
            return committed

        return await self._db.transaction(body)

    async def _stop(self, tx: Transaction, turn: Turn, writer: AnswerWriter) -> None:
        """What was committed before ``!stop`` is the whole answer."""
        row = await answers.get(tx, writer.answer_id or 0)
        if row is None or row.complete:
            return
        message_id = await self._store(tx, turn, row.text)
        await writer.stop(tx, message_id=message_id)
        await self._answered(tx, turn, row.id, "stopped")

    async def _store(self, tx: Transaction, turn: Turn, text: str) -> int | None:
        """The assistant's row; a continued answer grows instead, so that it stays one message."""
        question = turn.last
        if question.person.conv_id is None or not text:
            return None
        if turn.continues is not None:
            cut = await answers.get(tx, turn.continues)
            await answers.take_rest(tx, turn.continues)
            if cut is not None and cut.message_id is not None:
                await messages.extend(tx, cut.message_id, f" {text}")
                return cut.message_id
        stored = await messages.append(
            tx,
            question.person.conv_id,
            role="assistant",
            content=text,
            now=self._clock.now(),
            sender_name=self._settings().bot.name,
            reply_to=question.message_id,
        )
        return stored.id

    async def _answered(self, tx: Transaction, turn: Turn, answer_id: int, reason: str) -> None:
        for question in turn.questions:
            await inbound.set_state(
                tx, question.inbound_id, "answered", now=self._clock.now(), answer_id=answer_id, reason=reason
            )

    async def _disclose(self, tx: Transaction, turn: Turn, writer: AnswerWriter) -> None:
        """First contact: one line, only into space that the last part leaves free."""
        conv_id = turn.last.person.conv_id
        conversation = await conversations.get(tx, conv_id) if conv_id is not None else None
        if conversation is None or conversation.kind != "dm" or conversation.disclosed_at is not None:
            return
        if writer.append_if_free(f"\n{self._disclosure.line}"):
            await conversations.set_disclosed(tx, conversation.id, self._clock.now())

    def _log(self, turn: Turn, prompt: Prompt, finish: Finish, committed: Committed, took_s: float) -> None:
        log.info(
            "answered %s: %d question(s), prompt %d tokens (%d cached), answer %d tokens, %s, %.1f s%s",
            turn.last.person.node_id,
            len(turn.questions),
            finish.usage.prompt_tokens or prompt.tokens_est,
            finish.usage.cached_tokens,
            finish.usage.completion_tokens,
            finish.endpoint or self._model.label,
            took_s,
            ", more waits" if committed.rest else "",
        )


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.warning("could not note that an answer is being made: %s", task.exception())
