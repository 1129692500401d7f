"""``!forget N|all``: remove a fact, or erase everything for good (DESIGN §4.3)."""

from __future__ import annotations

import secrets
from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.commands.fit import fit
from meshai.storage.database import Transaction

CODE_VALID_S = 120.0


class Forget(Command):
    """Erasing needs a code that is valid for two minutes."""

    name: ClassVar[str] = "forget"
    usage: ClassVar[str] = "N|all"
    summary: ClassVar[str] = "remove a fact, or erase everything for good"
    help: ClassVar[str] = (
        "forget 3 removes the third of your facts. forget all erases everything of yours for good: messages, facts, "
        "summaries. I ask back before I do it."
    )
    needs_memory: ClassVar[bool] = True

    def __init__(self) -> None:
        self._codes: dict[int, tuple[str, float]] = {}  # conversation: code, valid until (monotonic)

    def stops_answer(self, argument: str) -> bool:
        """Before everything is erased."""
        return argument.lower().startswith("all ")

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """One fact, or all."""
        word, _, code = call.argument.strip().partition(" ")
        if word.lower() == "all":
            return await self._everything(call, tx, code.strip())
        if not (word.isascii() and word.isdigit()):
            return Reply("Which one? facts lists them; for example: forget 3. Or: forget all.")
        fact = await call.services.memory.forget_fact(tx, call.conv_id, int(word[:6]), call.now)
        if fact is None:
            return Reply(f"There is no fact {word[:6]}. facts lists them.")
        line = call.services.memory.fact_line(fact)
        return Reply(fit(f"Forgotten: {line}", call.services.settings().reply.max_bytes))

    async def _everything(self, call: Call, tx: Transaction, code: str) -> Outcome:
        now = call.services.clock.monotonic()
        expected, until = self._codes.get(call.conv_id, ("", 0.0))
        if not code or code != expected or now > until:
            fresh = f"{secrets.randbelow(9000) + 1000}"
            self._codes[call.conv_id] = (fresh, now + CODE_VALID_S)
            return Reply(f'Send "!forget all {fresh}" within two minutes to erase everything.')
        del self._codes[call.conv_id]
        count = await call.services.memory.forget_all(tx, call.conv_id, call.now)
        return Reply(f"Erased everything: {count} messages, all facts and summaries.", erased=True)
