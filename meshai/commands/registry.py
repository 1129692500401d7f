"""Every command there is: a new one is one module plus one line here."""

from __future__ import annotations

from meshai.commands.about import About
from meshai.commands.admin import Admin
from meshai.commands.again import Again
from meshai.commands.base import Command
from meshai.commands.compact import Compact
from meshai.commands.facts import Facts
from meshai.commands.forget import Forget
from meshai.commands.help import Help
from meshai.commands.memory import Memory
from meshai.commands.more import More
from meshai.commands.ping import Ping
from meshai.commands.recall import Recall
from meshai.commands.remember import Remember
from meshai.commands.reset import Reset
from meshai.commands.status import Status
from meshai.commands.stop import Stop
from meshai.commands.summary import Summary
from meshai.commands.whoami import Whoami

COMMANDS: tuple[Command, ...] = (
    Help(),
    Ping(),
    Status(),
    About(),
    Whoami(),
    Reset(),
    More(),
    Again(),
    Stop(),
    Memory(),
    Summary(),
    Compact(),
    Facts(),
    Remember(),
    Forget(),
    Recall(),
    Admin(),
)
"""In the order ``!help`` names them."""

SHORTHANDS: dict[str, tuple[str, str]] = {
    "summary_status": ("memory", ""),
    "summary_on": ("memory", "on"),
    "summary_off": ("memory", "off"),
    "summary_now": ("compact", ""),
}
"""Words of a source design (S3-21 to S3-24) that stand for a command with its argument."""

_BY_WORD = {word: command for command in COMMANDS for word in (command.name, *command.aliases)}


def find(word: str, argument: str = "") -> tuple[Command | None, str]:
    """The command a word (lower case, without "!") calls, by name, alias or shorthand, and its argument."""
    word, argument = SHORTHANDS.get(word, (word, argument))
    return _BY_WORD.get(word), argument
