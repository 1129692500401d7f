"""A mesh with the bot's node on TCP and on a pseudo terminal, phones, a scripted model, and a quick link."""

import asyncio
import functools
import os
import pty
import re
import sys
import termios

import pytest

import meshai.setup.node as nodes
from meshai.llm.scripted import ScriptedServer
from meshai.radio.timings import Timings
from meshai.radio.virtual import PtyPort, default_mesh

FAST = Timings(
    connect_s=2.0, silence_s=0.6, backlog_quiet_s=0.2, backlog_max_s=1.0, backoff_min_s=0.05, backoff_max_s=0.1,
    linger_s=0.0, admin_gap_s=0.05,
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick_link(monkeypatch):
    monkeypatch.setattr(nodes, "TIMINGS", FAST)


@pytest.fixture
async def mesh():
    virtual = default_mesh(speed=50, loss=0.0, direct=True)
    await virtual.start()
    yield virtual
    await virtual.stop()


@pytest.fixture
async def usb(mesh, tmp_path):
    """The bot's node on a serial port, too, with a lasting name."""
    directory = tmp_path / "by-id"
    directory.mkdir()
    port = PtyPort(mesh.bot, directory / "usb-RAKwireless_WisCore-if00")
    port.start()
    yield port
    port.stop()


@pytest.fixture
async def server():
    async with ScriptedServer() as running:
        running.serve_models("llama3.2:3b", "nomic-embed-text", "qwen3:8b")
        running.rule = lambda prompt: "LoRa is a long-range radio modulation."
        yield running


class Terminal:
    """A command on a pseudo terminal: what it shows, and keys."""

    def __init__(self, process, master):
        self.process = process
        self.screen = ""
        self._master = master
        self._changed = asyncio.Event()
        os.set_blocking(master, False)
        asyncio.get_running_loop().add_reader(master, self._readable)

    async def until(self, pattern, timeout_s=20.0):
        """Wait for a text behind what was waited for before; returns the match."""
        try:
            async with asyncio.timeout(timeout_s):
                while (found := re.search(pattern, self.screen[self._seen :], re.DOTALL)) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"no {pattern!r} on the screen:\n{self.screen}") from None
        self._seen += found.end()
        return found

    _seen = 0

    async def answer(self, question, keys):
        await self.until(re.escape(question))
        await self.until(r": $")
        self.type(keys + "\n")

    def type(self, keys):
        os.write(self._master, keys.encode())

    async def end(self, timeout_s=20.0):
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()

    def close(self):
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _readable(self):
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the other side is closed
            asyncio.get_running_loop().remove_reader(self._master)
            return
        text = data.decode("utf-8", "replace")
        self.screen += re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
        self._changed.set()


@pytest.fixture
async def terminal(tmp_path):
    """Start a ``meshai`` command on a terminal of its own."""
    started = []

    async def start(*args):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (60, 120))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MESHAI_", "LLM_"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "meshai", *args,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=kept | {"HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"},
            preexec_fn=functools.partial(_own_terminal, slave),
        )  # fmt: skip
        os.close(slave)
        started.append(Terminal(process, master))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
            await each.process.wait()
        each.close()


def _own_terminal(slave):
    """Ctrl-C on this terminal is for this process."""
    import fcntl

    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
