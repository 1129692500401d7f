"""One answer, from the stored question to committed packets. Every failure the person can notice is said in one
short packet; nothing canned is stored as conversation (DESIGN §3 Failures).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from meshai.clock import Clock
from meshai.commands.target import address
from meshai.config.model import Settings
from meshai.conversation import persona
from meshai.conversation.disclosure import Disclosure
from meshai.conversation.distress import is_distress
from meshai.conversation.responder import Turn
from meshai.delivery.outbox import Answer, Outbox
from meshai.delivery.plain import to_plain
from meshai.delivery.writer import AnswerWriter
from meshai.errors import ContextTooLongError, EmptyAnswerError, ModelError
from meshai.llm.base import ChatModel, ChatRequest, Finish
from meshai.memory.memory import Ask, Memory, Prompt
from meshai.storage import conversations, inbound, messages
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

DEADLINE_S = 180.0
"""A question has so long in all, endpoints and retries included (DESIGN §3 Times)."""
THINKING = "👀"
CONTINUE = "Go on with your last answer exactly where it broke off. Do not repeat anything."


@dataclass(frozen=True, slots=True)
class Plan:
    """What an answer may use, decided before the model is asked."""

    parts: int
    max_tokens: int


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
        allowed_parts: Callable[[int | None, float | None], int],
    ) -> None:
        """``allowed_parts`` tells from hops and SNR how many packets an answer may have now (the governor)."""
        self._db = db
        self._settings = settings
        self._clock = clock
        self._memory = memory
        self._model = model
        self._outbox = outbox
        self._allowed_parts = allowed_parts
        self._disclosure = Disclosure(settings, model)

    async def answer(self, turn: Turn) -> None:
        """Answer the turn's questions together. May be cancelled, and called again with one more question."""
        await self._db.transaction(lambda tx: self._begin(tx, turn))
        await self._distress(turn)
        wait_s = self._settings().reply.burst_wait_s
        if wait_s:
            await self._clock.sleep(wait_s)
        nod = asyncio.get_running_loop().create_task(self._nod(turn))
        try:
            await self._ask(turn)
        except ModelError as error:
            log.warning("no answer for %s: %s", turn.last.person.node_id, error)
            await self._fail(turn, error)
        finally:
            nod.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await nod

    async def _ask(self, turn: Turn) -> None:
        plan = self._plan(turn)
        started = self._clock.monotonic()
        try:
            await self._attempt(turn, plan, started)
        except ContextTooLongError as error:
            if turn.settled:
                raise
            self._memory.learn_context(self._model.label, error.context_tokens)
            await self._attempt(turn, plan, started)
