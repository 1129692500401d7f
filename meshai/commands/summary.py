"""``!summary``: what the model is told of the time before the last messages."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.fit import fit
from meshai.storage.database import Transaction


class Summary(Command):
    """The active summaries, in one packet."""

    name: ClassVar[str] = "summary"
    summary: ClassVar[str] = "what I remember of earlier talk, in short"
    help: ClassVar[str] = (
        "summary shows the notes I have of our earlier talk. You can also recall words, and see facts."
    )
    needs_memory: ClassVar[bool] = True

    async def look(self, call: Call) -> str:
        """The text, read before the transaction."""
        text = await call.services.memory.summary_text(call.conv_id)
        return fit(text, call.services.settings().reply.max_bytes)

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Says so when there is none yet."""
        return Reply(call.seen or "No summary yet: I still see all your messages word for word.")
