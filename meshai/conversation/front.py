"""Where a stored question goes: a command, the model's queue, one short notice, or silence."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from meshai.clock import Clock
from meshai.config.model import Settings
from meshai.conversation.dispatch import Dispatcher
from meshai.conversation.notices import Notices
from meshai.conversation.responder import Responder
from meshai.conversation.router import RouteKind
from meshai.conversation.throttle import HOUR_S, Throttle, Verdict
from meshai.identity import is_admin
from meshai.inbox import STALE_S, Question
from meshai.pause import Pause
from meshai.storage import answers, inbound, tokens
from meshai.storage.database import Database

log = logging.getLogger(__name__)

MORE_TAPBACKS = frozenset({"👍", "👍🏻", "👍🏼", "👍🏽", "👍🏾", "👍🏿"})

DAY_S = 86400.0
TOKENS_SPENT = "The model's allowance for today is used up. Please ask again tomorrow; commands still work."
BUSY = "I am busy with other questions. Please ask again in a few minutes."
RATE_NOTICES = {
    Verdict.PERSON_RATE: "That was a lot in one hour. I answer you again when the hour is over.",
    Verdict.TOTAL_RATE: "Too many questions for one hour on this mesh. Please try again later.",
}


class Front:
    """The decision between inbox and answer."""

    def __init__(
        self,
        db: Database,
        settings: Callable[[], Settings],
        clock: Clock,
        dispatcher: Dispatcher,
        responder: Responder,
        notices: Notices,
        pause: Pause,
    ) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock
        self._dispatcher = dispatcher
        self._responder = responder
        self._notices = notices
        self._pause = pause
        limits = settings().limits
        self._throttle = Throttle(limits.per_node_per_hour, limits.per_hour)
        self._command_throttle = Throttle(2 * limits.per_node_per_hour, 2 * limits.per_hour)

    def apply_limits(self) -> None:
        """Take over changed limits after a reload."""
        limits = self._settings().limits
        self._throttle.per_node_per_hour = limits.per_node_per_hour
        self._throttle.per_hour = limits.per_hour
        self._command_throttle.per_node_per_hour = 2 * limits.per_node_per_hour
        self._command_throttle.per_hour = 2 * limits.per_hour

    async def start(self) -> None:
        """Carry the last hour's rates and a pause over a restart."""
        await self._pause.load(self._db)
        self._throttle.seed(await inbound.asked_since(self._db, self._clock.now() - HOUR_S))

    async def take(self, question: Question) -> None:
        """Send one question on its way."""
        if self._pause.is_on and not is_admin(self._settings().access.admins, question.person):
            await self._ignore(question, "paused")
        elif question.is_tapback:
            await self._tapback(question)
        elif question.expired:
            await self._was_offline(question)
        elif question.route.kind is RouteKind.COMMAND:
            await self._command(question)
        else:
            await self._chat(question)

    async def resume(self, question: Question) -> None:
        """Take up a question from before a restart; it was counted and judged then."""
        if question.is_tapback or question.route.kind is RouteKind.IGNORE:
            await self._ignore(question, "restart")
        elif question.route.kind is RouteKind.COMMAND:
            await self._dispatcher.run(question)
        elif not self._responder.submit(question):
            await self._notices.once(question, "busy", BUSY)

    async def _command(self, question: Question) -> None:
        words = f"!{question.route.word} {question.route.text} {question.packet_id}"  # repeating one is no loop
        if self._command_throttle.judge(question.person.node_id, words, self._clock.now()) is Verdict.GO:
            await self._dispatcher.run(question)
        else:
            await self._ignore(question, "command rate")

    async def _chat(self, question: Question) -> None:
        verdict = self._throttle.judge(question.person.node_id, question.route.text, self._clock.now())
        if verdict is Verdict.GO and await self._is_capped(question):
            await self._notices.once(question, "tokens", TOKENS_SPENT, every_s=DAY_S)
        elif verdict is Verdict.GO:
            brief = self._throttle.is_suspicious(question.person.node_id)
            if not self._responder.submit(replace(question, brief=brief)):
                await self._notices.once(question, "busy", BUSY)
        elif verdict is Verdict.LOOP:
            log.warning("%s looks like another bot: silent towards it for 15 minutes", question.person.node_id)
            await self._ignore(question, "loop")
        else:
            await self._notices.once(question, verdict.value, RATE_NOTICES[verdict])

    async def _is_capped(self, question: Question) -> bool:
        """Whether the day's tokens are used up, for this node or for everybody; 0 is no cap."""
        limits = self._settings().limits
        if not (limits.tokens_per_day or limits.tokens_per_day_total):
            return False
        mine, everybody = await tokens.spent(self._db, question.person.node_id, now=self._clock.now())
        over_own = limits.tokens_per_day and mine >= limits.tokens_per_day
        return bool(over_own or (limits.tokens_per_day_total and everybody >= limits.tokens_per_day_total))

    async def _was_offline(self, question: Question) -> None:
        age = self._clock.now() - question.received_at
        if age > self._settings().reply.hold_s:
            await self._ignore(question, "too old", state="expired")
            return
        # one line for each node and absence
        asked = time.strftime("%H:%M", time.localtime(question.received_at))
        text = f"I was offline at {asked}, please ask again."
        await self._notices.once(question, "offline", text, every_s=STALE_S, state="expired")

    async def _tapback(self, question: Question) -> None:
        """👍 on an answer that offers more is "more"; everything else is a gesture, not a question."""
        if question.route.text.strip() in MORE_TAPBACKS and question.reply_id is not None:
            node_id = question.person.node_id
            if await answers.offers_more(self._db, node_id, question.reply_id):
                await self._dispatcher.more(question)
                return
        await self._ignore(question, "tapback")

    async def _ignore(self, question: Question, reason: str, *, state: str = "ignored") -> None:
        await self._db.transaction(
            lambda tx: inbound.set_state(tx, question.inbound_id, state, now=self._clock.now(), reason=reason)
        )
