"""``!whoami``: how the bot sees the caller."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.identity import Standing, fingerprint, is_admin
from meshai.storage import messages
from meshai.storage.database import Transaction

_STANDINGS = {
    Standing.KNOWN: "your key is the one I know",
    Standing.STRANGER: "a new key for your node: my owner must accept it before I show you its history",
    Standing.NUMBER: "not authenticated, known by number only",
    Standing.STATELESS: "not authenticated although your node has a key: I remember nothing",
}


class Whoami(Command):
    """Node, key and standing of the caller."""

    name: ClassVar[str] = "whoami"
    summary: ClassVar[str] = "how I see you: node, key, history"
    help: ClassVar[str] = "whoami tells how I see you: your node, your key's fingerprint, and what I keep of you."

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Never shows more than the caller's own."""
        person = call.person
        key = f", key {fingerprint(person.public_key)}" if person.public_key else ""
        kept = ""
        if person.conv_id is not None:
            kept = f" {await messages.count_epoch(tx, person.conv_id)} messages in your history."
        admin = " You are an admin." if is_admin(call.services.settings().access.admins, person) else ""
        return Reply(f"You are {person.node_id}{key}: {_STANDINGS[person.standing]}.{kept}{admin}")
