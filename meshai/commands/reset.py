"""``!reset``: a fresh conversation (S0-20; DESIGN §4.3)."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.target import address
from meshai.storage.database import Transaction


class Reset(Command):
    """Starts a new epoch: the old one is out of every prompt and search at once."""

    name: ClassVar[str] = "reset"
    aliases: ClassVar[tuple[str, ...]] = ("clear",)
    summary: ClassVar[str] = "start a fresh conversation"
    help: ClassVar[str] = (
        "reset starts afresh: I never see the old messages again, but my owner's archive keeps them. What you gave me "
        "with !remember stays. !forget all erases everything."
    )
    needs_memory: ClassVar[bool] = True

    def stops_answer(self, argument: str) -> bool:
        """Always."""
        return True

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """The pinned answer; N counts messages, not commands and notices."""
        count = await call.services.memory.reset(tx, call.conv_id, call.now)
        await call.services.outbox.forget_rests(tx, address(call.question))
        return Reply(f"Cleared {count} messages from your history.")
