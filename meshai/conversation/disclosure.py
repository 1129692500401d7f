"""The one line a person gets with the first answer, where it fits: what answers, and where the words go."""

from __future__ import annotations

from collections.abc import Callable

from meshai.config.model import Settings
from meshai.llm.base import ChatModel


class Disclosure:
    """Knows the line; whether it was said is a column of the conversation."""

    def __init__(self, settings: Callable[[], Settings], model: ChatModel) -> None:
        self._settings = settings
        self._model = model

    @property
    def line(self) -> str:
        """Short: it only goes into space that the last part leaves free."""
        what = "Bot without AI model" if self._model.is_offline else "AI, may be wrong"
        where = "sent to a cloud, " if self._model.leaves_house else ""
        return f"({what}; {where}stored on {self._owner} computer. !help)"

    @property
    def _owner(self) -> str:
        owner = self._settings().bot.owner
        return f"{owner}'s" if owner and len(owner) <= 20 else "my owner's"
