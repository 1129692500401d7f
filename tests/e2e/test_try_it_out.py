"""What somebody without hardware types first: ``meshai demo``, ``meshai chat``, ``meshai simulate``."""

import asyncio
import os
import re
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.e2e_world import MESHAI

from meshai.llm.scripted import ScriptedServer

MESHTASTIC = (sys.executable, "-m", "meshtastic")


@pytest.fixture
def env(tmp_path):
    """A place of its own for temporary files, and nothing of the developer's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MESHAI_", "LLM_", "PYTHONIOENCODING"))}
    (tmp_path / "tmp").mkdir()
    return kept | {"TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}


@asynccontextmanager
async def running(*command, env, stdin=asyncio.subprocess.DEVNULL):
    """A process that does not outlive the test."""
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def output(*command, env, text=None):
    """Run to the end: (exit code, everything it said)."""
    stdin = asyncio.subprocess.DEVNULL if text is None else asyncio.subprocess.PIPE
    async with running(*command, env=env, stdin=stdin) as process:
        out, _ = await process.communicate(text.encode() if text is not None else None)
        return process.returncode, out.decode()


async def read_until(process, wanted):
    """Output up to the line that contains ``wanted``."""
    seen = ""
    while wanted not in seen:
        line = await process.stdout.readline()
        assert line, f"ended without {wanted!r}:\n{seen}"
        seen += line.decode()
    return seen


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


async def test_demo_runs_without_a_terminal_and_leaves_nothing(env):
    code, out = await output(*MESHAI, "demo", env=env)
    assert code == 0, out
    for wanted in ("[3/3]", "Alice wrote", "pong: heard you over 1 hop", "Cleared 8 messages", "All as it should be"):
        assert wanted in out
    assert "\x1b" not in out
    assert "WARNING" not in out
    assert list(Path(env["TMPDIR"]).iterdir()) == []


async def test_demo_in_an_ascii_world(env):
    code, out = await output(*MESHAI, "demo", "--speed", "60", env=env | {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"})
    assert code == 0, out
    assert out.isascii()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_demo_that_is_interrupted_cleans_up(env, number):
    async with running(*MESHAI, "demo", env=env) as process:
        await read_until(process, "1. A question")
        process.send_signal(number)
        rest, _ = await process.communicate()
        assert process.returncode == 130
        assert b"Traceback" not in rest
    assert list(Path(env["TMPDIR"]).iterdir()) == []


async def test_chat_answers_lines_from_a_pipe(env):
    code, out = await output(
        *MESHAI, "chat", "--speed", "30", env=env, text="My camp is at the lake.\n\nWhere is my camp?"
    )
    assert code == 0, out
    assert "Ctrl-D ends" in out
    assert out.count("✓ delivered") == 2
    assert '"My camp is at the lake."' in out.replace("\n                  ", " ")
    assert list(Path(env["TMPDIR"]).iterdir()) == []


async def test_chat_with_a_model_strips_terminal_escapes(env):
    async with ScriptedServer() as server:
        server.rule = lambda prompt: "\x1b[2JHello \x1b]0;owned\x07from the model"
        command = (*MESHAI, "chat", "--speed", "30", "--llm", server.base_url, "--model", "scripted")
        code, out = await output(*command, env=env, text="hi\n")
    assert code == 0, out
    assert "from the model" in out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert server.requests[0].last.endswith("hi")


async def test_chat_works_below_a_very_long_directory(env, tmp_path):
    """A Unix socket's path has at most 107 bytes."""
    place = tmp_path / ("x" * 110)
    place.mkdir()
    code, out = await output(*MESHAI, "chat", env=env | {"TMPDIR": str(place)}, text="")
    assert code == 0, out


async def test_chat_tells_that_a_line_was_too_long(env):
    code, out = await output(*MESHAI, "chat", "--speed", "30", env=env, text="x" * 221)
    assert code == 0, out
    assert "TOO_LARGE (longer than 220 bytes)" in out


@pytest.mark.parametrize(
    "options", [("--llm", "http://127.0.0.1:1/v1"), ("--model", "x"), ("--llm", "nonsense", "--model", "x")]
)
async def test_chat_with_half_a_model_is_refused(env, options):
    code, out = await output(*MESHAI, "chat", *options, env=env)
    assert code == 2
    assert "--llm" in out


async def test_chat_on_a_terminal(env):
    """Line editing, receipts, Ctrl-C, Ctrl-D on a pseudo terminal."""
    master, slave = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *MESHAI, "chat", "--speed", "30", env=env | {"TERM": "xterm"}, stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    screen = Screen(master)
    try:
        await screen.until("you>")
        os.write(master, b"thrown away\x03")
        os.write(master, b"!ping\r")
        await screen.until("pong: heard you")
        os.write(master, b"\x04")
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        screen.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "delivered after" in screen.text
    assert "thrown away: " not in screen.text


class Screen:
    """What a terminal shows, as one growing text."""

    def __init__(self, descriptor):
        self.text = ""
        self._descriptor = descriptor
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self):
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        if b"\x1b[6n" in data:  # "where is the cursor?"
            os.write(self._descriptor, b"\x1b[1;1R")
        self.text += data.decode(errors="replace")
        self._changed.set()

    async def until(self, wanted):
        async with asyncio.timeout(20):
            while wanted not in self.text:
                self._changed.clear()
                await self._changed.wait()

    def close(self):
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)


async def test_stock_command_line_gets_an_ack_and_an_answer(env, tmp_path):
    """The official ``meshtastic`` as the phone, ``meshai run`` as the bot, exactly as ``simulate`` says."""
    port, phone_port = free_port(), free_port()
    simulate = (*MESHAI, "simulate", "--port", str(port), "--phone-port", str(phone_port), "--speed", "10")
    async with running(*simulate, env=env) as mesh:
        said = await read_until(mesh, "--listen")
        bot_id = re.search(r"--dest '(![0-9a-f]{8})'", said)[1]
        settings = dict(re.findall(r"(MESHAI_\w+)='?([^' ]+)'?", said.split("meshai run")[0]))
        database = {"MESHAI_STORAGE__DATABASE": str(tmp_path / "meshai.db")}
        async with running(*MESHAI, "run", env=env | settings | database) as bot:
            await read_until(bot, "connected to")
            host = f"127.0.0.1:{phone_port}"
            code, out = await output(
                *MESHTASTIC, "--host", host, "--dest", bot_id, "--sendtext", "What is a hop limit?", "--ack", env=env
            )
            assert code == 0, out
            assert "Received an ACK." in out
            async with running(*MESHTASTIC, "--host", host, "--listen", env=env) as phone:
                answer = await read_until(phone, "From my notes")
                assert "hop limit at 3" in answer
            bot.send_signal(signal.SIGTERM)
            await bot.communicate()
            assert bot.returncode == 0
        mesh.send_signal(signal.SIGTERM)
        await mesh.communicate()
        assert mesh.returncode == 0


async def test_simulate_says_which_port_is_taken(env):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out = await output(*MESHAI, "simulate", "--port", str(free_port()), "--phone-port", str(port), env=env)
    assert code == 3
    assert out == f"meshai: port {port} is in use by another program; choose one with --phone-port\n"


async def test_simulate_needs_two_ports(env):
    code, out = await output(*MESHAI, "simulate", "--port", "4500", "--phone-port", "4500", env=env)
    assert code == 2
    assert "the same" in out
