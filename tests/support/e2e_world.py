"""Everything at once: a virtual mesh, the real daemon on it over TCP, and a scripted model over HTTP.

``World`` runs the daemon in the test's process, ``Process`` as ``meshai run``. Both share ``Base``: what people do,
and what the database knows, read from the outside.
"""

import asyncio
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import yaml

from meshai.config.model import Endpoint
from meshai.demo.stage import Stage
from meshai.llm.scripted import ScriptedServer

SPEED = 40.0
"""Protocol seconds per real one: two seconds on the air take 50 ms."""
SPACING_S = 0.1
"""Four seconds of the mesh: the node's two-second rule keeps its distance on a busy computer, too."""
MARK = re.compile(r"^\[\d+(?:/\d+)?\] ")
DISCLOSURE = re.compile(r"\n?\((?:AI, may be wrong|Bot without AI model);[^)]*\)")
DONE_SQL = """
SELECT (SELECT count(*) FROM inbound WHERE state IN ('received', 'answering'))
     + (SELECT count(*) FROM outbound WHERE state = 'queued' OR (state = 'sent' AND settled_at IS NULL))
"""
MESHAI = (sys.executable, "-m", "meshai")


class Base:
    """A mesh, two people (Alice, Bob), a scripted model and a database."""

    def __init__(self, path: Path, *, loss=0.0, seed=1, model=True, **sections):
        self.path = path
        self.server = ScriptedServer()
        self.has_model = model
        self.sections = sections
        self.stage = Stage(path, speed=SPEED, seed=seed, loss=loss, direct=True, sections=self._all(sections))
        self.alice, self.bob = self.stage.phones

    def _all(self, sections):
        reply = {"spacing_s": SPACING_S, "thinking_after_s": 0.0} | sections.get("reply", {})
        memory = {"idle_s": 3600.0} | sections.get("memory", {})
        return sections | {"reply": reply, "memory": memory}

    async def __aenter__(self):
        await self.server.start()
        if self.has_model:
            endpoint = Endpoint(name="scripted", base_url=self.server.base_url, model="scripted", context_tokens=8192)
            self.stage._endpoints = [endpoint.model_dump()]
        await self.stage.__aenter__()
        return self

    async def __aexit__(self, *exc_info):
        await self.stage.__aexit__(*exc_info)
        await self.server.stop()

    def rows(self, sql, *params):
        """What the database says, as another process sees it."""
        with closing(sqlite3.connect(f"file:{self.stage.database}?mode=ro", uri=True)) as db:
            return db.execute(sql, params).fetchall()

    def value(self, sql, *params):
        return self.rows(sql, *params)[0][0]

    async def send(self, phone, text, **fields):
        return await phone.send_dm(self.stage.bot, text, **fields)

    async def ask(self, phone, text, *, timeout_s=15.0, **fields):
        """Send a DM; returns what came back: parts joined, without their marks and the disclosure."""
        seen = len(phone.received)
        sent = await self.send(phone, text, **fields)
        await self.until(lambda: self.heard(sent), timeout_s)
        await self.quiet(timeout_s)
        return self.text(phone, seen)

    def heard(self, sent):
        return bool(self.rows("SELECT 1 FROM inbound WHERE packet_id = ?", sent.packet_id))

    def text(self, phone, since=0):
        return DISCLOSURE.sub("", " ".join(MARK.sub("", m.text) for m in self.messages(phone, since)))

    def messages(self, phone, since=0):
        """The bot's texts on a phone."""
        return [m for m in phone.received[since:] if m.from_num == self.stage.bot and not m.emoji]

    async def quiet(self, timeout_s=15.0):
        """Wait until nothing is being answered or under way."""
        await self.until(lambda: self.value(DONE_SQL) == 0, timeout_s)

    async def until(self, condition, timeout_s=15.0):
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.02)


class World(Base):
    """The daemon in this process."""

    async def __aenter__(self):
        await super().__aenter__()
        await self.stage.start_bot()
        return self

    async def restart(self):
        await self.stage.stop_bot()
        await self.stage.start_bot()

    @property
    def daemon(self):
        return self.stage.service.daemon


class Process(Base):
    """The daemon as ``meshai run``."""

    def __init__(self, path, **more):
        super().__init__(path, **more)
        self.log = path / "log.txt"
        self.config = path / "config.yaml"
        self.running = None
        self.starts = 0

    async def __aexit__(self, *exc_info):
        if self.running is not None and self.running.returncode is None:
            self.running.kill()
            await self.running.wait()
        await super().__aexit__(*exc_info)

    def configure(self, **sections):
        """Write the configuration file."""
        settings = self.stage.settings().model_dump(mode="json", exclude_defaults=True)
        for name, values in sections.items():
            settings.setdefault(name, {}).update(values)
        self.config.write_text(yaml.safe_dump(settings))
        self.config.chmod(0o600)

    async def start(self):
        """Run it and wait until it has its node."""
        if not self.config.exists():
            self.configure()
        self.running = await self.spawn("run", "-c", str(self.config), log=self.log)
        self.starts += 1
        await self.until(lambda: self.log.read_text().count("connected to") == self.starts, 20.0)

    async def spawn(self, *args, log=None, stdin=None):
        """A ``meshai`` command; its output goes to ``log`` or to pipes."""
        if log is None:
            return await asyncio.create_subprocess_exec(
                *MESHAI, *args, env=self.env(), stdin=stdin or asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        with log.open("ab") as file:
            return await asyncio.create_subprocess_exec(
                *MESHAI, *args, env=self.env(), stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file
            )

    async def meshai(self, *args):
        """Run a command to its end: (exit code, stdout, stderr)."""
        process = await self.spawn(*args)
        try:
            async with asyncio.timeout(20.0):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        return process.returncode, out.decode(), err.decode()

    def env(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MESHAI_", "LLM_"))}
        return kept | {"RUNTIME_DIRECTORY": str(self.path), "PYTHONUNBUFFERED": "1", "HOME": str(self.path)}

    async def end(self, number=signal.SIGTERM):
        """Send a signal and wait; returns the exit code."""
        self.running.send_signal(number)
        async with asyncio.timeout(15.0):
            return await self.running.wait()
