"""Asking and showing on a terminal. Answers are checked at once; a wrong one is asked again with the reason."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from meshai.errors import UsageError

T = TypeVar("T")


class Console:
    """The operator's terminal, or the output of a program without one."""

    def __init__(self, *, asks: bool) -> None:
        """``asks`` False: nothing is asked, whoever needs an answer raises UsageError before."""
        self.asks = asks

    @property
    def colour(self) -> bool:
        """Whether escape codes are understood."""
        return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def can_draw(self) -> bool:
        """Whether the half blocks of a QR code can be written here."""
        try:
            "▀▄█".encode(sys.stdout.encoding or "ascii")
        except (LookupError, UnicodeEncodeError):
            return False
        return True

    @property
    def columns(self) -> int:
        """How wide the terminal is."""
        return shutil.get_terminal_size().columns

    def say(self, text: str = "") -> None:
        """Show a text of our own."""
        click.echo(text)

    def head(self, text: str) -> None:
        """Begin a step."""
        click.echo("\n" + click.style(text, bold=True))

    def warn(self, text: str) -> None:
        """Show what needs attention."""
        click.echo(click.style("! ", fg="yellow", bold=True) + text)

    def ask(self, question: str, check: Callable[[str], T], default: str = "") -> T:
        """Ask until ``check`` takes the answer; its UsageError is the reason for asking again."""

        def checked(text: str) -> T:
            try:
                return check(text)
            except UsageError as error:
                raise click.UsageError(str(error)) from None

        answer: T = click.prompt(f"  {question}", default=default, show_default=bool(default), value_proc=checked)
        return answer

    def choose(self, question: str, options: Sequence[str], default: int = 0) -> int:
        """Ask for one of several by its number; returns its index."""
        for number, option in enumerate(options, 1):
            click.echo(f"  {number}  {option}")

        def index(text: str) -> int:
            if text.strip().isascii() and text.strip().isdigit() and 1 <= int(text) <= len(options):
                return int(text) - 1
            raise UsageError(f"a number from 1 to {len(options)}, please")

        return self.ask(question, index, str(default + 1))

    def confirm(self, question: str, *, default: bool) -> bool:
        """Yes or no."""
        return click.confirm(f"  {question}", default=default)

    def secret(self, question: str) -> str:
        """Something that is not shown while it is typed; "" when nothing was."""
        answer: str = click.prompt(f"  {question}", default="", show_default=False, hide_input=True)
        return answer.strip()


def printable(text: str) -> str:
    """One line without terminal escapes: text from the mesh, a model or a device."""
    return "".join(char if char.isprintable() else " " for char in text)
