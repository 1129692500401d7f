"""What a command is. One module a command; ``registry.py`` lists them.

A command's effect, its reply in the outbox and the question's state are one transaction (DESIGN §3), so ``run``
awaits nothing but that transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from meshai.clock import Clock
from meshai.config.model import Settings
from meshai.identity import Person
from meshai.inbox import Question
from meshai.pause import Pause
from meshai.storage.database import Transaction

if TYPE_CHECKING:
    from meshai.delivery.outbox import Outbox
    from meshai.llm.base import ChatModel
    from meshai.memory.memory import Memory
    from meshai.radio.link import RadioLink


@dataclass(frozen=True, slots=True)
class Services:
    """What commands work with."""

    settings: Callable[[], Settings]
    clock: Clock
    link: RadioLink
    model: ChatModel
    memory: Memory
    pause: Pause
    outbox: Outbox
    queue_length: Callable[[], int]
    airtime: Callable[[], Mapping[str, object]]
    started_at: float  # monotonic


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a command."""

    question: Question
    argument: str
    now: float
    services: Services
    stopped: bool = False  # an answer in progress was stopped for this call
    seen: str = ""  # what the command's ``look`` returned

    @property
    def conv_id(self) -> int:
        """The caller's conversation; only for commands that need memory."""
        assert self.question.person.conv_id is not None
        return self.question.person.conv_id

    @property
    def person(self) -> Person:
        """Who called."""
        return self.question.person


@dataclass(frozen=True, slots=True)
class Reply:
    """One short text for the caller. ``erased``: the question's own row is gone with everything else."""

    text: str
    erased: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """The command has put its packets into the outbox itself, as this answer."""

    answer_id: int


@dataclass(frozen=True, slots=True)
class Continue:
    """Ask the model to go on with its cut answer: the caller's question becomes chat."""

    answer_id: int


Outcome = Reply | Sent | Continue


class Command(Protocol):
    """A ``!command``. Subclass it and override what differs from the defaults."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """A few words, for the reference."""
    help: ClassVar[str]
    """What ``!help NAME`` answers; one packet."""
    usage: ClassVar[str] = ""
    """The argument: ``[command]``."""
    aliases: ClassVar[tuple[str, ...]] = ()
    needs_memory: ClassVar[bool] = False
    """Not for people without a conversation, nor on a channel."""
    for_admins: ClassVar[bool] = False
    """Unknown to everybody else."""

    def stops_answer(self, argument: str) -> bool:
        """Whether the person's answer in progress is stopped first."""
        return False

    async def look(self, call: Call) -> str:
        """What must be read or done before the transaction; ``run`` finds it in ``call.seen``."""
        return ""

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Do it inside ``tx``."""
        ...
