"""Every command there is: a new one is one module plus one line here."""

from __future__ import annotations

from meshai.commands.about import About
from meshai.commands.admin import Admin
from meshai.commands.again import Again
from meshai.commands.base import Command
from meshai.commands.help import Help
from meshai.commands.more import More
from meshai.commands.ping import Ping
from meshai.commands.reset import Reset
from meshai.commands.status import Status
from meshai.commands.stop import Stop
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
    Admin(),
)
"""In the order ``!help`` names them."""

_BY_WORD = {word: command for command in COMMANDS for word in (command.name, *command.aliases)}


def find(word: str) -> Command | None:
    """The command a word (lower case, without "!") calls, by name or alias."""
    return _BY_WORD.get(word)
