"""docs/commands.md is what the registry says."""

from pathlib import Path

import pytest

from meshai.commands import reference
from meshai.commands.registry import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_page_is_in_step_with_registry():
    wanted = reference.markdown(COMMANDS)
    assert PAGE.read_text(encoding="utf-8") == wanted, "run: python -m meshai.commands.reference > docs/commands.md"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_alias_has_its_row(command):
    row = next(line for line in reference.markdown(COMMANDS).splitlines() if line.startswith(f"| `!{command.name}"))
    assert all(f"`!{alias}`" in row for alias in command.aliases)
    assert command.summary in row
