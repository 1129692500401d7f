"""``!again [part]``: stored parts once more, without a model call."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply, Sent
from meshai.commands.target import address
from meshai.storage.database import Transaction


class Again(Command):
    """Sends the last answer, or one part of it, again."""

    name: ClassVar[str] = "again"
    usage: ClassVar[str] = "[part]"
    summary: ClassVar[str] = "the last answer, or one part of it, once more"
    help: ClassVar[str] = "again sends my last answer once more; again 2 only its part 2."

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """A part that does not exist is said so."""
        part: int | None = None
        if call.argument:
            word = call.argument.split()[0]
            if not (word.isascii() and word.isdigit() and 1 <= int(word[:4]) <= 99):
                return Reply("Which part? For example: again 2 (with ! in front).")
            part = int(word[:4])
        sent = await call.services.outbox.again(tx, address(call.question), part)
        if sent is not None:
            return Sent(sent.answer_id)
        return Reply("I have no such part to send again." if part else "I have nothing to send again.")
