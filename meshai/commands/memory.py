"""``!memory [on|off|every N]``: what the memory of this conversation does (S3-22, S3-23)."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.fit import fit
from meshai.storage.database import Transaction

ON = "Memory on."
OFF = "Memory off: I use only your last messages. Nothing is erased."


class Memory(Command):
    """Figures and switches of the caller's memory."""

    name: ClassVar[str] = "memory"
    usage: ClassVar[str] = "[on|off|every N]"
    aliases: ClassVar[tuple[str, ...]] = ("mem",)
    summary: ClassVar[str] = "what I remember of you, and how"
    help: ClassVar[str] = (
        "memory shows what I keep of you. memory off: I use only your last messages, what I keep stays; memory on. "
        "memory every 20: how often I summarise."
    )
    needs_memory: ClassVar[bool] = True

    async def look(self, call: Call) -> str:
        """The figures, read before the transaction."""
        if call.argument:
            return ""
        status = await call.services.memory.status(call.conv_id)
        facts = [
            f"Memory {'on' if status.enabled else 'off'} ({status.strategy})",
            f"{status.messages} messages, {status.archived} summarised, {status.since_last} word for word",
            f"{status.summaries} summaries up to level {status.max_level}",
            f"{status.facts} facts",
        ]
        if status.compact_every:
            facts.append(f"every {status.compact_every} turns")
        if status.last_failure:
            facts.append("last summary failed, I try again")
        return fit("; ".join(facts) + ".", call.services.settings().reply.max_bytes)

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """A switch takes effect with its reply."""
        memory = call.services.memory
        word, _, rest = call.argument.lower().partition(" ")
        match word:
            case "":
                return Reply(call.seen)
            case "on" | "off":
                await memory.set_enabled(tx, call.conv_id, enabled=word == "on")
                return Reply(ON if word == "on" else OFF)
            case "every":
                return await self._every(call, tx, rest.strip())
        return Reply("Usage: memory, memory on, memory off, memory every 20 (with ! in front).")

    async def _every(self, call: Call, tx: Transaction, number: str) -> Outcome:
        if not (number.isascii() and number.isdigit() and 1 <= int(number[:5]) <= 500):
            return Reply("Every how many turns? 1 to 500, for example: memory every 20.")
        await call.services.memory.set_compact_every(tx, call.conv_id, int(number))
        return Reply(f"I summarise every {int(number)} turns from now on.")
