"""`meshai SUBCOMMAND`: what the pages and the program's own advice name, exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from support.papers import ROOT, pages

from meshai.cli import COMMANDS, LazyGroup

CALL = re.compile(r"(?:^|(?<=[\s`/(:]))meshai ([a-z]+)(?: ([a-z]+))?")
ADVICE = re.compile(r"(?:[`:]\s*|run |with )meshai ([a-z]+)(?: ([a-z]+))?")


def code_of(text: str) -> str:
    """Fenced blocks and inline code of a page: prose may say meshai anything."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join(fenced + inline)


def unknown(calls: list[tuple[str, str]]) -> list[str]:
    return [f"meshai {name} {sub}".strip() for name, sub in calls if not exists(name, sub)]


def exists(name: str, sub: str) -> bool:
    command = LazyGroup(name="meshai").get_command(click.Context(click.Command("meshai")), name)
    if isinstance(command, click.Group) and sub:
        return sub in command.commands
    return command is not None


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_page_names_existing_subcommands(page: Path):
    assert unknown(CALL.findall(code_of(page.read_text(encoding="utf-8")))) == []


def test_readme_or_troubleshooting_names_every_subcommand():
    told = "".join(path.read_text(encoding="utf-8") for path in pages())
    assert [name for name in COMMANDS if f"meshai {name}" not in told] == []


def test_program_advises_existing_subcommands():
    """A log line that says what to type must be right: the operator reads it in trouble."""
    calls = []
    for path in sorted((ROOT / "meshai").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                calls += ADVICE.findall(node.value)
    assert unknown(sorted(set(calls))) == []


def test_unknown_subcommand_would_be_found():
    assert unknown([("dance", "")]) == ["meshai dance"]
    assert unknown([("config", "dance")]) == ["meshai config dance"]
    assert unknown([("config", "check")]) == []
