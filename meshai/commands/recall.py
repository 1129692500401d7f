"""``!recall WORDS``: earlier messages with these words; works without any model."""

from __future__ import annotations

import time
from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.fit import fit, fit_list
from meshai.storage.database import Transaction


class Recall(Command):
    """Searches the caller's own archive of this conversation."""

    name: ClassVar[str] = "recall"
    usage: ClassVar[str] = "WORDS"
    summary: ClassVar[str] = "find your earlier messages by words"
    help: ClassVar[str] = "recall WORDS finds earlier messages of our talk, without the language model."
    needs_memory: ClassVar[bool] = True

    async def look(self, call: Call) -> str:
        """Best hits first, each with its date and author, as many as fit."""
        if not call.argument:
            return "Which words? For example: recall north ridge."
        hits = await call.services.memory.recall(call.conv_id, call.argument, limit=5)
        if not hits:
            return "I find nothing like that in our talk."
        lines = [f"{_day(hit.date)}{hit.who or 'you'}: {' '.join(hit.text.split())}" for hit in hits]
        room = call.services.settings().reply.max_bytes
        text, _ = fit_list([fit(line, max(60, room // 2)) for line in lines], room, separator=" | ")
        return text

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """What ``look`` found."""
        return Reply(call.seen)


def _day(at: float) -> str:
    return time.strftime("%d %b ", time.localtime(at)) if at > 0 else ""
