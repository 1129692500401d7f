"""``!about``: what this is, who runs it, where the words go."""

from __future__ import annotations

from typing import ClassVar

from meshai import __version__
from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.storage.database import Transaction


class About(Command):
    """What this is and whom to ask."""

    name: ClassVar[str] = "about"
    summary: ClassVar[str] = "what this is, who runs it, where your words go"
    help: ClassVar[str] = "about tells what I am, who runs me, and where your words are stored and sent."

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """One packet, whatever the owner's name."""
        model = call.services.model
        owner = call.services.settings().bot.owner
        words = "go to a cloud model" if model.leaves_house else "stay in the house"
        if model.is_offline:
            words = "stay here; no language model is connected"
        return Reply(
            f"MeshAI {__version__}, a chatbot{f' run by {owner}' if owner else ''}. I may be wrong; not for "
            "emergencies. "
            f"Chats are stored on my owner's computer and {words}."
        )
