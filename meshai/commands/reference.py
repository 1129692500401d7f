"""The reference of the radio commands as Markdown, made from the registry: ``docs/commands.md`` is this text."""

from __future__ import annotations

from collections.abc import Iterable

from meshai.commands.base import Command

_HEAD = """\
# Radio commands

<!-- Made from meshai/commands/registry.py. To renew it: python -m meshai.commands.reference > docs/commands.md -->

Send these as a direct message to the bot. A command is `!` and a word at the very beginning, in upper or lower
case; everything else is a question for the model. An unknown `!word` gets one hint in ten minutes. Each reply fits
one packet where it can, and no reply begins with `!`.

| command | also | what it does |
|---|---|---|
"""

_DETAILS = """
## One by one

What the bot itself says of each:
"""

_TAPBACK = """
A 👍 on the last part of an answer that offers more does the same as `!more`.
"""


def markdown(commands: Iterable[Command]) -> str:
    """The whole page; ends with a newline."""
    listed = tuple(commands)
    rows = "".join(f"| `{_call(command)}` | {_aliases(command)} | {command.summary} |\n" for command in listed)
    details = "".join(f"\n- **!{command.name}**{command.help.removeprefix(command.name)}" for command in listed)
    return f"{_HEAD}{rows}{_TAPBACK}{_DETAILS}{details}\n"


def _call(command: Command) -> str:
    return f"!{command.name} {command.usage}".strip().replace("|", "\\|")  # a table cell ends at a bare "|"


def _aliases(command: Command) -> str:
    return ", ".join(f"`!{alias}`" for alias in command.aliases)


if __name__ == "__main__":
    import sys

    from meshai.commands.registry import COMMANDS

    sys.stdout.write(markdown(COMMANDS))
