"""``!more``: the rest of the last answer."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Continue, Outcome, Reply, Sent
from meshai.commands.target import address, threads_on
from meshai.storage.database import Transaction


class More(Command):
    """Sends what waits; where the model itself was cut, asks it to go on."""

    name: ClassVar[str] = "more"
    summary: ClassVar[str] = "the rest of the last answer"
    help: ClassVar[str] = "more sends the rest of my last long answer."

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Stored text first; no model call for it."""
        outbox = call.services.outbox
        question = call.question
        sent = await outbox.more(
            tx,
            address(question),
            inbound_id=question.inbound_id,
            reply_id=threads_on(question),
            hops_used=question.hops,
        )
        if sent is not None:
            return Sent(sent.answer_id)
        cut = await outbox.truncated_answer(tx, address(call.question))
        if cut is not None:
            return Continue(cut.id)
        return Reply("There is nothing more to send.")
