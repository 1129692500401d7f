"""``!reset``: a fresh conversation (S0-20; DESIGN §4.3)."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Outcome, Reply
from meshai.storage.database import Transaction


class Reset:
    """Starts a new epoch: the old one is out of every prompt and search at once."""

    name: ClassVar[str] = "reset"
    aliases: ClassVar[tuple[str, ...]] = ("clear",)
    usage: ClassVar[str] = ""
    summary: ClassVar[str] = "start a fresh conversation"
    help: ClassVar[str] = (
        "reset starts afresh: I never see the old messages again, but my owner's archive keeps them. What you gave me "
        "with !remember stays. !forget all erases everything."
    )
    stops_answer: ClassVar[bool] = True
    needs_memory: ClassVar[bool] = True
    for_admins: ClassVar[bool] = False

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """The pinned answer; N counts messages, not commands and notices."""
        assert call.person.conv_id is not None
        count = await call.services.memory.reset(tx, call.person.conv_id, call.now)
        return Reply(f"Cleared {count} messages from your history.")
