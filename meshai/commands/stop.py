"""``!stop``: end the answer in progress and drop what is not sent."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.target import address
from meshai.storage.database import Transaction


class Stop(Command):
    """The dispatcher has already stopped the model; this empties the outbox."""

    name: ClassVar[str] = "stop"
    summary: ClassVar[str] = "stop the answer in progress"
    help: ClassVar[str] = "stop ends my answer in progress and drops the parts that are not sent yet."

    def stops_answer(self, argument: str) -> bool:
        """Always."""
        return True

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Says whether there was anything to stop."""
        dropped = await call.services.outbox.stop(tx, address(call.question))
        return Reply("Stopped." if dropped or call.stopped else "There is nothing to stop.")
