"""Asking the system's own commands; always a fixed program with arguments of ours, never a shell."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshai.errors import MissingError


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Ask = Callable[[Sequence[str]], Answer | None]


def ask(command: Sequence[str], *, timeout_s: float = 20.0) -> Answer | None:
    """Run a command; None when it is not on this computer or does not end in time."""
    try:
        done = subprocess.run(  # noqa: S603 - see above
            list(command), capture_output=True, text=True, errors="replace", check=False, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Answer(done.returncode, done.stdout, done.stderr)


def must(command: Sequence[str], *, timeout_s: float = 120.0) -> None:
    """Run a command that has to succeed; raises MissingError with its complaint."""
    answer = ask(command, timeout_s=timeout_s)
    if answer is None:
        raise MissingError(f"{shlex.join(command)}: no such command here, or it does not end")
    if answer.code != 0:
        raise MissingError(f"{shlex.join(command)}: {(answer.err or answer.out).strip()[-300:]}")
