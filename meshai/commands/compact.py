"""``!compact``: summarise now (S2-2, S3-24)."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.storage.database import Transaction


class Compact(Command):
    """Runs at once, whatever the idle rule or a backoff says."""

    name: ClassVar[str] = "compact"
    summary: ClassVar[str] = "summarise our older talk now"
    help: ClassVar[str] = "compact summarises our older talk now, instead of when it is due."
    needs_memory: ClassVar[bool] = True

    async def look(self, call: Call) -> str:
        """Digest at once; the model betters it afterwards, in the background."""
        return await call.services.memory.compact_now(call.conv_id)

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """What was done, in one packet."""
        return Reply(call.seen)
