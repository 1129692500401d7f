"""``!remember TEXT``: a fact that stays, also after ``!reset``."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.fit import fit
from meshai.storage.database import Transaction


class Remember(Command):
    """Keeps what the caller asks to keep."""

    name: ClassVar[str] = "remember"
    usage: ClassVar[str] = "TEXT"
    summary: ClassVar[str] = "keep a fact about you, also after !reset"
    help: ClassVar[str] = (
        "remember TEXT keeps it for good, also after !reset. facts lists what is kept, forget N removes one."
    )
    needs_memory: ClassVar[bool] = True

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Stored with its reply."""
        if not call.argument or call.question.message_id is None:
            return Reply("What shall I remember? For example: remember my camp is at the north ridge.")
        fact = await call.services.memory.remember(
            tx, call.conv_id, call.argument, message_id=call.question.message_id, now=call.now
        )
        if fact is None:
            return Reply("I could not make a fact of that. Say it in a short sentence.")
        return Reply(fit(f"I remember: {fact.value}", call.services.settings().reply.max_bytes))
