"""``!help [command]``."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.identity import is_admin
from meshai.storage.database import Transaction


class Help(Command):
    """Names the commands, or explains one."""

    name: ClassVar[str] = "help"
    aliases: ClassVar[tuple[str, ...]] = ("h", "?")
    usage: ClassVar[str] = "[command]"
    summary: ClassVar[str] = "lists the commands, or explains one"
    help: ClassVar[str] = "help [command] lists the commands, or explains one of them."

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Answer from the registry."""
        from meshai.commands import registry  # the registry imports this module

        word = call.argument.split()[0].lower().removeprefix("!") if call.argument else ""
        command, _ = registry.find(word)
        admin = is_admin(call.services.settings().access.admins, call.person)
        if command is not None and (admin or not command.for_admins):
            return Reply(command.help)
        names = " ".join(f"!{c.name}" for c in registry.COMMANDS if c.name != self.name and (admin or not c.for_admins))
        unknown = f"No command {word[:20]}. " if word else ""
        return Reply(f"{unknown}Just ask me anything. Commands: {names}. More on one: !help reset")
