"""Short texts that are no model's answer: failures, limits, distress. Archived as notices, never shown to a model."""

from __future__ import annotations

import logging
import math

from meshai.clock import Clock
from meshai.commands.target import address, threads_on
from meshai.conversation.responder import Turn
from meshai.conversation.throttle import HOUR_S
from meshai.delivery.outbox import Answer, Outbox
from meshai.errors import EmptyAnswerError, ModelError, ModelRequestError
from meshai.inbox import Question
from meshai.knowledge.notes import Notes
from meshai.storage import inbound, messages, nodes
from meshai.storage.answers import Kind
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

BROKEN = "Something went wrong inside me. My owner can see it in the log."
FROM_NOTES = " From my notes: "
USELESS_NOTES = (EmptyAnswerError, ModelRequestError)
"""Here the model was there: asking it in other words helps more than a look-up."""


class Notices:
    """Says things in one packet each."""

    def __init__(self, db: Database, clock: Clock, outbox: Outbox) -> None:
        self._db = db
        self._clock = clock
        self._outbox = outbox
        self._notes = Notes()

    async def say(self, tx: Transaction, question: Question, text: str, *, kind: Kind = "notice") -> int:
        """Archive a text and queue its packet; returns the answer's id."""
        message_id = None
        if question.person.conv_id is not None:
            stored = await messages.append(
                tx,
                question.person.conv_id,
                role="notice",
                content=text,
                now=self._clock.now(),
                reply_to=question.message_id,
                is_command=kind == "command",
            )
            message_id = stored.id
        committed = await self._outbox.commit(
            tx,
            Answer(
                to=address(question),
                text=text,
                kind=kind,
                conv_id=question.person.conv_id,
                inbound_id=question.inbound_id,
                reply_id=threads_on(question),
                hops_used=question.hops,
                asked_at=question.received_at,
                max_parts=1,
                message_id=message_id,
            ),
        )
        return committed.answer_id

    async def settle(
        self, tx: Transaction, question: Question, text: str, *, kind: Kind = "notice", state: str = "answered"
    ) -> None:
        """``say``, and with it the question is done."""
        answer_id = await self.say(tx, question, text, kind=kind)
        await inbound.set_state(tx, question.inbound_id, state, now=self._clock.now(), answer_id=answer_id)

    async def once(
        self,
        question: Question,
        kind: str,
        text: str,
        *,
        every_s: float = HOUR_S,
        state: str = "ignored",
    ) -> None:
        """Say something of a kind at most once in a while to a node, then silence; the question is done either way."""

        async def body(tx: Transaction) -> None:
            now = self._clock.now()
            if await nodes.may_notify(tx, question.person.node_id, kind, now=now, every_s=every_s):
                await self.say(tx, question, text)
            await inbound.set_state(tx, question.inbound_id, state, now=now, reason=kind)

        await self._db.transaction(body)

    async def distress(self, question: Question, text: str) -> None:
        """The fixed sentence for somebody in danger; the question itself stays open for the model."""

        async def body(tx: Transaction) -> None:
            await self.say(tx, question, text)

        await self._db.transaction(body)
        log.warning("%s used words of distress; it was told that nobody is alerted", question.person.node_id)

    async def model_failed(self, turn: Turn, error: ModelError) -> None:
        """What went wrong, for every question of the turn at once; with what the notes say, where that fits."""
        turn.settled = True
        room = self._outbox.settings().max_bytes - len(f"{error.notice}{FROM_NOTES}".encode())
        found = "" if isinstance(error, USELESS_NOTES) else self._notes.sentences(turn.last.route.text, room)
        text = f"{error.notice}{FROM_NOTES}{found}" if found else error.notice
        await self._settle_turn(turn, text, type(error).__name__)

    async def broken(self, turn: Turn) -> None:
        """A bug of ours: the person is told, the log has the rest."""
        turn.settled = True
        await self._settle_turn(turn, BROKEN, "bug")

    async def budget_spent(self, turn: Turn, again_in_s: float) -> None:
        """The airtime budget is used up: each person is told once an hour when to ask again."""
        turn.settled = True
        minutes = max(1, math.ceil(again_in_s / 60))
        for question in turn.questions:
            text = f"I have used my share of the air for now. Please ask again in {minutes} min."
            await self.once(question, "budget", text)

    async def _settle_turn(self, turn: Turn, text: str, reason: str) -> None:
        async def body(tx: Transaction) -> None:
            answer_id = await self.say(tx, turn.last, text)
            for question in turn.questions:
                await inbound.set_state(
                    tx, question.inbound_id, "answered", now=self._clock.now(), reason=reason, answer_id=answer_id
                )

        await self._db.transaction(body)
