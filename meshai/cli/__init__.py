"""The ``meshai`` command: its subcommands, what they exit with, and how a failure is said.

``meshai --help`` and ``--version`` import click and nothing of ours but this module (DESIGN §4.1).
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from meshai import __version__
from meshai.errors import ConfigError, MeshAIError

EXIT_USAGE = 2
EXIT_MISSING = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141  # what a shell reports for a program that SIGPIPE ended

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, what `meshai --help` says); each module has a click command called `command`
    "run": ("meshai.cli.run", "Run the daemon in the foreground."),
    "setup": ("meshai.cli.setup", "Set up node, model and configuration; become its admin."),
    "status": ("meshai.cli.status", "Show how the running daemon is doing."),
    "doctor": ("meshai.cli.doctor", "Check everything an installation needs."),
    "backup": ("meshai.cli.backup", "Copy the database, also while the daemon runs."),
    "restore": ("meshai.cli.restore", "Use a copy of the database again."),
    "memory": ("meshai.cli.memory", "Look into the archive, check it, repair it, take it along."),
    "replay": ("meshai.cli.replay", "Show the exact prompt behind an answer."),
    "identity": ("meshai.cli.identity", "Show the keys of the nodes; accept a changed one."),
    "service": ("meshai.cli.service", "Install the system service, update it, look at it."),
    "demo": ("meshai.cli.demo", "Watch a conversation on a virtual mesh; needs no hardware."),
    "chat": ("meshai.cli.chat", "Be the phone yourself, on a virtual mesh."),
    "simulate": ("meshai.cli.simulate", "Serve a virtual mesh on two TCP ports."),
    "config": ("meshai.cli.config", "Check a configuration file, or print the example."),
}

log = logging.getLogger("meshai")


class LazyGroup(click.Group):
    """Knows its subcommands by name and imports a module only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order of the table: the daemon first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import the subcommand; None when there is no such one."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The list of subcommands, from the table: nothing is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="meshai", message="%(prog)s %(version)s")
def cli() -> None:
    """A chatbot daemon for Meshtastic: answers direct messages and remembers the conversation."""


def main() -> None:
    """The entry point of the ``meshai`` script."""
    sys.exit(execute(sys.argv[1:]))


def execute(args: Sequence[str]) -> int:
    """Run the command line and return its exit code: 0, 1, 2, 3, 70, or 130 after Ctrl-C. Never a traceback."""
    try:
        return _invoke(args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_PIPE
    except Exception as error:  # noqa: BLE001 - the last line of defence: whatever it is, it ends in an exit code
        return _failure(error)


def _invoke(args: Sequence[str]) -> int:
    try:
        with cli.make_context("meshai", list(args)) as context:  # cli.main() would make exit code 1 of a broken pipe
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        sys.stdout.flush()
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except click.Abort:
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _failure(error: Exception) -> int:
    cause = _cause(error)
    if _debugging():
        traceback.print_exception(error)
    if isinstance(cause, MeshAIError):
        _say(str(cause) if isinstance(cause, ConfigError) else f"meshai: {cause}")
        return cause.exit_code
    if isinstance(cause, ModuleNotFoundError) and not (cause.name or "").startswith("meshai"):
        _say(f"meshai: the Python package {cause.name} is missing; install MeshAI again, with its dependencies")
        return EXIT_MISSING
    if logging.getLogger().handlers and not _debugging():  # the daemon's log is where a bug is looked for later
        log.critical("internal error", exc_info=error)
    _say(
        f"meshai: internal error ({type(cause).__name__} at {_place(cause)}). This is a bug in MeshAI: "
        "please report it with what you did. MESHAI_DEBUG=1 shows the details."
    )
    return EXIT_BUG


def _cause(error: Exception) -> Exception:
    """The one error inside a task group's group."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _place(error: Exception) -> str:
    """File and line of the innermost frame of ours, without the message: that may hold somebody's words."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "meshai" in Path(frame.filename).parts] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "an unknown place"


def _debugging() -> bool:
    return os.environ.get("MESHAI_DEBUG", "") not in ("", "0")


def _say(text: str) -> None:
    """To stderr, without control characters: a file name or a key may hold any."""
    click.echo("".join(char if char.isprintable() or char == "\n" else "?" for char in text), err=True)


def _forget_stdout() -> None:
    """The reader has gone; keep the interpreter from complaining when it flushes at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
