"""Running a command: its effect, its reply in the outbox and the question's state are one transaction (DESIGN §3)."""

from __future__ import annotations

import logging
from dataclasses import replace

from meshai.commands.base import Call, Command, Continue, Reply, Sent, Services
from meshai.commands.registry import find
from meshai.conversation.notices import Notices
from meshai.conversation.responder import Responder
from meshai.conversation.router import Route, RouteKind
from meshai.identity import is_admin
from meshai.inbox import Question
from meshai.storage import inbound, nodes
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

HINT_EVERY_S = 600.0
NO_MEMORY = (
    "Your node did not authenticate this message, so I have no memory of you. Ask without it, or check your node's key."
)


class Dispatcher:
    """Commands from people."""

    def __init__(self, db: Database, services: Services, responder: Responder, notices: Notices) -> None:
        self._db = db
        self._services = services
        self._responder = responder
        self._notices = notices

    async def run(self, question: Question) -> None:
        """Answer a ``!word``; an unknown one gets a hint now and then in a DM, and silence on a channel."""
        command, argument = self._find(question)
        stopped = False
        if command is not None and command.stops_answer(argument):
            dropped = await self._responder.stop(question)
            stopped = bool(dropped)
            await self._db.transaction(lambda tx: self._ignore(tx, dropped))
        call = Call(question, argument, self._services.clock.now(), self._services, stopped=stopped)
        if command is not None and self._refusal(command, question) == "":
            call = replace(call, seen=await command.look(call))
        continued = await self._db.transaction(lambda tx: self._run(tx, command, call))
        if continued is not None and not self._responder.submit(question, continues=continued):
            await self._notices.once(question, "busy", "I am busy. Please try again in a minute.")

    def _find(self, question: Question) -> tuple[Command | None, str]:
        """Admin commands exist for admins only: to anybody else they are unknown."""
        command, argument = find(question.route.word, question.route.text)
        if command is None or not command.for_admins:
            return command, argument
        admins = self._services.settings().access.admins
        allowed = question.channel is None and is_admin(admins, question.person)
        return (command if allowed else None), argument

    async def more(self, question: Question) -> None:
        """What ``!more`` does, asked by a tapback."""
        await self.run(replace(question, route=Route(RouteKind.COMMAND, "", "more")))

    async def _run(self, tx: Transaction, command: Command | None, call: Call) -> int | None:
        question, now = call.question, call.now
        if command is None:
            await self._hint(tx, question, now)
            return None
        refusal = self._refusal(command, question)
        outcome = Reply(refusal) if refusal else await command.run(call, tx)
        match outcome:
            case Reply(text, erased):
                if erased:
                    question = replace(question, message_id=None)
                await self._notices.settle(tx, question, text, kind="command")
            case Sent(answer_id):
                await inbound.set_state(tx, question.inbound_id, "answered", now=now, answer_id=answer_id)
            case Continue(answer_id):
                return answer_id
        log.info("%s used !%s", question.person.node_id, command.name)
        return None

    @staticmethod
    def _refusal(command: Command, question: Question) -> str:
        if not command.needs_memory:
            return ""
        if question.channel is not None:
            return "Please ask me that in a direct message."
        return "" if question.person.has_memory else NO_MEMORY

    async def _hint(self, tx: Transaction, question: Question, now: float) -> None:
        node_id = question.person.node_id
        silent = question.channel is not None or not await nodes.may_notify(
            tx, node_id, "unknown command", now=now, every_s=HINT_EVERY_S
        )
        if silent:
            await inbound.set_state(tx, question.inbound_id, "ignored", now=now, reason="unknown command")
            return
        await self._notices.settle(
            tx, question, f"I do not know !{question.route.word[:20]}. Try !help.", kind="command"
        )

    async def _ignore(self, tx: Transaction, dropped: list[Question]) -> None:
        for question in dropped:
            await inbound.set_state(
                tx, question.inbound_id, "ignored", now=self._services.clock.now(), reason="stopped"
            )
