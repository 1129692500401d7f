"""``!facts [from]``: what the bot knows of the caller, numbered for ``!forget N``."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.fit import fit, fit_list
from meshai.storage.database import Transaction


class Facts(Command):
    """The facts of the caller."""

    name: ClassVar[str] = "facts"
    usage: ClassVar[str] = "[from]"
    summary: ClassVar[str] = "what I know of you"
    help: ClassVar[str] = (
        "facts lists what I know of you; facts 9 goes on from the ninth. forget 3 removes the third, "
        "remember TEXT adds one (each with ! in front)."
    )
    needs_memory: ClassVar[bool] = True

    async def look(self, call: Call) -> str:
        """The list, as many as fit."""
        memory = call.services.memory
        facts = await memory.facts(call.conv_id)
        word = call.argument.strip()[:4]
        first = max(1, int(word)) if word.isascii() and word.isdigit() else 1
        lines = [f"{number} {memory.fact_line(fact)}" for number, fact in enumerate(facts, start=1)][first - 1 :]
        if not lines:
            return "I know nothing of you yet." if not facts else f"I know {len(facts)} things of you."
        room = call.services.settings().reply.max_bytes
        text, count = fit_list(lines, room)
        if count < len(lines):
            text, count = fit_list(lines, room - 24)
            text += f"; on with !facts {first + max(1, count)}"
        return text or fit(lines[0], room)

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """What ``look`` found."""
        return Reply(call.seen)
