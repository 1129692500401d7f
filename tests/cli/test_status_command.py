"""`meshai status`: what it says when nobody answers, and how --watch draws."""

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys

import pytest

from meshai.cli import status, watch
from meshai.errors import MissingError
from meshai.ops import paths
from meshai.ops.control import ControlServer
from meshai.ops.lock import DatabaseLock

FACTS = {
    "version": "1", "pid": 7, "unwell": "", "uptime_s": 5.0, "node": None, "problems": [], "dropped": {}, "nodes": [],
    "link": {"state": "down", "device": "x", "reason": "gone"}, "queue": {"waiting": 0, "in_progress": 0},
    "tokens": [], "delivery": {}, "airtime": {"used_percent": 0.0, "budget_percent": 5.0},
    "memory": {"messages": 1, "conversations": 1, "strategy": "tiered"}, "model": {"label": "m"},
}  # fmt: skip


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr(paths, "SERVICE_RUNTIME", tmp_path / "none")
    return tmp_path / "meshai.db"


@contextlib.contextmanager
def deaf(database):
    """A daemon that accepts and says nothing."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{database}.sock")
        server.listen()
        yield


def test_hanging_daemon_times_out_with_a_sentence(database, monkeypatch):
    monkeypatch.setattr(status, "TIMEOUT_S", 0.1)
    with deaf(database), pytest.raises(MissingError, match=r"did not answer within 0.1 s: it is starting or hangs"):
        status.ask(database)


def test_starting_daemon_is_not_called_absent(database):
    with DatabaseLock(paths.lock_path(database)), pytest.raises(MissingError, match="starting or stopping"):
        status.ask(database)


def test_other_user_is_told_to_use_sudo(database, monkeypatch):
    monkeypatch.setattr("meshai.ops.lock.is_held", lambda _path: None)
    with pytest.raises(MissingError, match=r"no permission to see whether a daemon uses .* sudo"):
        status.ask(database)


@pytest.mark.parametrize("leftover", [False, True])
def test_absent_daemon_is_told_how_to_start_it(database, leftover):
    if leftover:
        with deaf(database):
            pass
    with pytest.raises(MissingError, match="meshai run"):
        status.ask(database)


def test_model_and_airtime_are_told_in_words():
    endpoint = {
        "name": "pi", "model": "llama", "base_url": "http://pi/v1", "leaves_house": False, "key": True, "quirks": [],
        "context_tokens": 4096, "context_source": "/props", "calls": 3, "prompt_tokens": 700, "cached_tokens": 200,
        "completion_tokens": 40, "state": "rests", "rest_s": 61.0, "failures": 2, "last_error": "refused\x1b[2J",
    }  # fmt: skip
    delivery = {"queued": 1, "in_flight": 0, "held": 2, "airtime": {"today": {"packets": 4, "airtime_ms": 5433}}}
    shown = status.render(FACTS | {"model": {"label": "m", "endpoints": [endpoint]}, "delivery": delivery})
    assert "rests 1m 1s (refused [2J); llama at http://pi/v1; context 4096 tokens (/props); 3 calls, 740 tok" in shown
    assert "2 failures in a row" in shown
    assert "1 queued, 0 on the air, 2 held" in shown
    assert "today 5.4 s in 4 packets" in shown
    assert "ready; llama" in status._endpoint(endpoint | {"state": "ready"})


def test_watch_shows_trouble_and_goes_on(capsys):
    answers = iter([MissingError("hangs"), {"n": 1}, KeyboardInterrupt()])

    def ask():
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    watch.watch(ask, json.dumps, sleep=lambda _s: None)
    assert capsys.readouterr().out == 'meshai: hangs\n{"n": 1}\n'


@pytest.mark.parametrize(("lines", "columns"), [(4, 20), (30, 200)])
def test_picture_never_scrolls_the_terminal(capsys, lines, columns):
    watch._draw("\n".join("x" * 50 for _ in range(10)), columns, lines)
    drawn = re.sub(r"\x1b\[[HKJ]", "", capsys.readouterr().out).split("\n")
    assert len(drawn) == lines
    assert max(map(len, drawn)) <= columns


async def test_watch_on_a_terminal_leaves_it_as_it_was(database):
    """The real command on a pty, with the daemon's real socket; Ctrl-C ends it with 0."""

    async def handler(_args, _report):
        return FACTS

    server = ControlServer(paths.control_socket(database, {}), {"status": handler})
    await server.start()
    master, slave = pty.openpty()
    env = {
        "PATH": os.environ["PATH"], "HOME": str(database.parent), "TERM": "screen",
        "MESHAI_STORAGE__DATABASE": str(database),
    }  # fmt: skip
    command = [sys.executable, "-m", "meshai", "status", "--watch"]
    process = await asyncio.to_thread(subprocess.Popen, command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    seen = b""
    while b"Ctrl-C ends" not in seen:
        seen += await asyncio.to_thread(os.read, master, 4096)
    process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(process.wait, 20) == 0
    with contextlib.suppress(OSError):
        seen += os.read(master, 4096)
    os.close(master)
    await server.stop()
    assert b"down (x): gone" in seen
    assert seen.startswith(watch.ENTER.encode())
    assert seen.endswith(watch.LEAVE.encode())
