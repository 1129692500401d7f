"""The shell around the subcommands: what is imported, how it ends, what is said."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import meshai.cli as shell
from meshai.errors import CheckFailedError, ConfigError, MissingError, Mistake, UsageError

ROOT = Path(__file__).parents[2]
HEAVY = {
    "aiosqlite",
    "google.protobuf",
    "httpx2",
    "meshtastic",
    "openai",
    "prompt_toolkit",
    "pubsub",
    "pydantic",
    "serial",
    "tiktoken",
    "yaml",
}


def meshai(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "meshai", *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **env},
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(argument):
    """Import budget: a Pi takes seconds for openai and pydantic."""
    code = (
        "import sys\nfrom meshai.cli import execute\n"
        f"assert execute([{argument!r}]) == 0\n"
        "print(*sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(done.stderr.split())
    assert not HEAVY & loaded
    assert {name for name in loaded if name.startswith("meshai")} == {"meshai", "meshai.cli", "meshai.errors"}
    assert done.stdout


def test_every_registered_command_exists_and_has_help():
    for name in shell.COMMANDS:
        done = meshai(name, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Usage: meshai {name}" in done.stdout


def test_version_is_that_of_the_package():
    from meshai import __version__

    assert meshai("--version").stdout == f"meshai {__version__}\n"


def test_unknown_command_is_bad_usage():
    done = meshai("rum")
    assert done.returncode == 2
    assert "No such command 'rum'" in done.stderr


@pytest.fixture
def outcome(monkeypatch, capsys):
    """Run a command that does ``action``; what came of it."""

    def running(action):
        @click.command()
        def command():
            return action()

        monkeypatch.setattr(shell.cli, "get_command", lambda ctx, name: command)
        code = shell.execute(["x"])
        return code, *capsys.readouterr()

    monkeypatch.delenv("MESHAI_DEBUG", raising=False)
    monkeypatch.setattr(shell.logging.getLogger(), "handlers", [])
    return running


def failing(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CheckFailedError("two checks failed"), 1, "meshai: two checks failed\n"),
        (UsageError("no such node"), 2, "meshai: no such node\n"),
        (ConfigError("f.yaml", [Mistake("a.b", "wrong", 3, 4)]), 2, "f.yaml:3:4: a.b: wrong\n"),
        (MissingError("no \x1b[31mport\x07"), 3, "meshai: no ?[31mport?\n"),
        (ExceptionGroup("tasks", [MissingError("gone")]), 3, "meshai: gone\n"),
        (ModuleNotFoundError("x", name="openai"), 3, "meshai: the Python package openai is missing"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_error_becomes_exit_code_and_one_sentence(outcome, error, code, text):
    got, out, err = outcome(failing(error))
    assert (got, out) == (code, "")
    assert err.startswith(text)
    assert "Traceback" not in err


def test_bug_asks_for_a_report_without_details(outcome):
    code, out, err = outcome(failing(ValueError("somebody's words")))
    assert (code, out) == (70, "")
    assert err.startswith("meshai: internal error (ValueError at ")
    assert "please report it" in err
    assert err.count("\n") == 1
    assert "somebody" not in err


def test_bug_shows_its_traceback_when_debugging(outcome, monkeypatch):
    monkeypatch.setenv("MESHAI_DEBUG", "1")
    code, _, err = outcome(failing(ValueError("details")))
    assert code == 70
    assert "ValueError: details" in err


def test_bug_in_the_daemon_goes_to_its_log(outcome, caplog):
    shell.logging.getLogger().addHandler(caplog.handler)
    assert outcome(failing(ValueError("details")))[0] == 70
    assert "ValueError: details" in caplog.text


@pytest.mark.parametrize(("value", "code"), [(None, 0), (0, 0), (1, 1), (3, 3)])
def test_command_returns_its_exit_code(outcome, value, code):
    assert outcome(lambda: value)[0] == code


PRINT_LATE = "import sys, meshai.cli\nsys.stdin.read()\nsys.exit(meshai.cli.execute(['config', 'example']))"


def test_reader_that_goes_away_is_no_error():
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            PRINT_LATE,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141
