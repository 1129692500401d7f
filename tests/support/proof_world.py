"""The whole daemon on a virtual mesh, both at the mesh's own pace: what takes a minute on the air takes half a second.

The phone, the air, TCP, the stock library, SQLite and HTTP are real; only time is shorter. Deadlines of the link to
the node count real seconds (they guard the computer's own work), everything else counts the mesh's.
"""

import asyncio
import re
import sqlite3
import time
from contextlib import closing, suppress

from support.wire_node import FAST

from meshai.config.loader import Loaded
from meshai.config.model import Settings
from meshai.llm import registry
from meshai.llm.scripted import Reply, ScriptedServer
from meshai.ops import control, paths
from meshai.radio.link import LinkState
from meshai.radio.registry import open_link
from meshai.radio.virtual import Link, Mesh, NodeSettings, Phone, TcpPort
from meshai.service import Service

SPEED = 100.0
TIMINGS = FAST.__class__(
    **{name: getattr(FAST, name) for name in FAST.__dataclass_fields__}
    | {"probe_answer_s": 0.25, "silence_s": 0.5, "backlog_quiet_s": 0.1, "clock_off_s": 1e12, "call_s": 2.0}
)
BUSY_SQL = """
SELECT (SELECT count(*) FROM inbound WHERE state IN ('received', 'answering'))
     + (SELECT count(*) FROM outbound WHERE state = 'queued' OR (state IN ('sent', 'relayed') AND settled_at IS NULL))
"""
PREFIX = re.compile(r"^(?:\[\d+(?:/\d+)?\] )?(?:\(re your \d\d:\d\d question\) )?")


class FastClock:
    """The mesh's time: as much faster than life as the mesh is."""

    def __init__(self, speed=SPEED):
        self.speed, self._wall, self._mono = speed, time.time(), time.monotonic()

    def now(self):
        return self._wall + self.monotonic() - self._mono * self.speed

    def monotonic(self):
        return time.monotonic() * self.speed

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / self.speed)


class Computer(FastClock):
    """Real durations under the mesh's calendar, for what talks to the node and to the model."""

    def monotonic(self):
        return time.monotonic()

    def now(self):
        return self._wall + (time.monotonic() - self._mono) * self.speed


class Tapped:
    """A link that says when it is about to hand over a packet, and when it has; it keeps what it reports."""

    def __init__(self, link, world):
        self._link, self._world = link, world

    def __getattr__(self, name):
        return getattr(self._link, name)

    async def start(self, sink):
        def both(event):
            self._world.events.append(event)
            sink(event)

        await self._link.start(both)

    async def send(self, request):
        await self._world.before_send(request)
        await self._link.send(request)
        self._world.handed.append(request)
        await self._world.after_send(request)


async def _nothing(_request):
    return None


class ProofWorld:
    """``async with ProofWorld(path) as world``: a bot's node on a TCP port, people around it, the daemon, a model."""

    def __init__(
        self, path, *, people=1, loss=0.0, seed=1, model=True, speed=SPEED, guest_of=None, node=None, radio=None,
        **sections,
    ):  # fmt: skip
        """``radio``: the nodes' settings. ``guest_of`` and ``node``: a second daemon on a node of another's mesh."""
        self.path, self.database = path, path / "meshai.db"
        self.guest = guest_of is not None
        if self.guest:
            self.clock, self.mesh, self.bot, self.phones = guest_of.clock, guest_of.mesh, node, []
        else:
            self.clock = FastClock(speed)
            self._populate(people, Link(loss=loss, snr=6.0), seed, radio or {})
        self.port = TcpPort(self.bot)
        self.server = ScriptedServer(clock=self.clock)
        self.has_model, self.sections = model, sections
        self.before_send = self.after_send = _nothing
        self.events, self.handed, self.running, self.service, self.link = [], [], None, None, None
        self.timings = TIMINGS

    def _populate(self, people, link, seed, common):
        self.mesh = Mesh(seed=seed, speed=self.clock.speed)
        self.mesh.timeline.real = self.mesh.timeline.now  # the node's calendar runs with the mesh, too
        self.bot = self.mesh.add(NodeSettings(long_name="Bot", **common))
        nodes = [self.mesh.add(NodeSettings(long_name=f"Person {n}", **common)) for n in range(people)]
        for node in nodes:
            self.mesh.link(self.bot, node, link)
        self.mesh.introduce()
        self.phones = [Phone(node) for node in nodes]

    @property
    def zoe(self):
        return self.phones[0]

    @property
    def daemon(self):
        return self.service.daemon

    def settings(self):
        endpoint = {"name": "scripted", "base_url": self.server.base_url, "model": "scripted", "context_tokens": 8192}
        endpoint |= self.sections.get("endpoint", {})
        sections = {
            "connection": {"type": "tcp", "tcp_port": self.port.port},
            "storage": {"database": str(self.database)},
            "reply": {"spacing_s": 6.0, "thinking_after_s": 0.0},
            "limits": {"per_node_per_hour": 1000, "per_hour": 10_000},
            "airtime": {"budget_percent": 100.0, "slow_at_percent": 100, "hold_at_percent": 100},
            "memory": {"idle_s": 3600.0},
            "llm": {"endpoints": [endpoint] if self.has_model else []},
        }
        for name, values in self.sections.items():
            if name != "endpoint":
                sections[name] = values if isinstance(values, list) else {**sections.get(name, {}), **values}
        return Settings.model_validate(sections)

    async def __aenter__(self):
        if not self.guest:
            self.mesh.start()
        await self.port.start()
        await self.server.start()
        await self.start()
        return self

    async def __aexit__(self, *exc_info):
        await self.stop()
        await self.server.stop()
        await self.port.stop()
        if not self.guest:
            self.mesh.stop()

    async def start(self):
        settings, computer = self.settings(), Computer(self.clock.speed)

        def link(_clock):
            self.link = Tapped(open_link(settings.connection, computer, self.timings), self)
            return self.link

        self.service = Service(
            Loaded(settings, None), env={"RUNTIME_DIRECTORY": str(self.path)}, clock=self.clock, open_link=link,
            signals=False,
        )  # fmt: skip
        self.running = asyncio.create_task(self.service.run())
        await self.until(lambda: self.running.done() or self.service.ready.is_set())
        if self.running.done():
            self.running.result()

    async def up(self):
        """Wait for the link."""
        await self.until(lambda: self.link.state is LinkState.UP)

    async def stop(self):
        running, self.running = self.running, None
        if running is not None:
            self.service.end()
            await asyncio.wait([running])
            with suppress(asyncio.CancelledError):
                running.result()

    async def restart(self):
        await self.stop()
        await self.start()

    async def control(self, name, **args):
        """Ask the daemon as ``meshai`` on the same computer does."""
        path = paths.control_socket(self.database, {"RUNTIME_DIRECTORY": str(self.path)})
        return await asyncio.to_thread(control.call, path, name, args)

    def rows(self, sql, *params):
        """What the database says, as another process sees it."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as db:
            return db.execute(sql, params).fetchall()

    def value(self, sql, *params):
        return self.rows(sql, *params)[0][0]

    async def until(self, condition, timeout_s=20.0):
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.01)

    async def pass_time(self, seconds):
        """Let protocol seconds pass."""
        await asyncio.sleep(seconds / self.clock.speed)

    async def ask(self, text, phone=None, **fields):
        """Send a DM and wait until the daemon has it."""
        sent = await (phone or self.zoe).send_dm(self.bot, text, **fields)
        await self.until(lambda: self.rows("SELECT 1 FROM inbound WHERE packet_id = ?", sent.packet_id))
        return sent

    async def answer(self, text, phone=None, **fields):
        """Ask, wait until all is quiet; what came back, joined."""
        phone = phone or self.zoe
        seen = len(phone.received)
        await self.ask(text, phone, **fields)
        await self.quiet()
        return self.said(phone, seen)

    async def quiet(self, timeout_s=30.0):
        """Wait until nothing is being answered or under way."""
        await self.until(lambda: self.value(BUSY_SQL) == 0, timeout_s)

    def texts(self, phone=None, since=0):
        """The bot's DMs on a phone's screen, as they came."""
        received = (phone or self.zoe).received[since:]
        return [m.text for m in received if m.from_num == self.bot.num and m.is_dm and not m.emoji]

    def said(self, phone=None, since=0):
        """The same without marks, joined."""
        return " ".join(PREFIX.sub("", text) for text in self.texts(phone, since))


def patient_model(monkeypatch, speed=SPEED):
    """The model's timeouts count real seconds: it runs on a computer, not on the air. Its pauses do not."""
    real_model, real_summarizer = registry.open_model, registry.open_summarizer
    clock = Computer(speed)
    monkeypatch.setattr(registry, "open_model", lambda *a, **k: real_model(*a, **k | {"clock": clock}))
    monkeypatch.setattr(registry, "open_summarizer", lambda *a, **k: real_summarizer(*a, **k | {"clock": clock}))


def words(name, count):
    """Prose of unique words, so that a loss or a doubling shows: ``Q1w000 Q1w001 ...``."""
    made = [f"{name}w{n:03d}" + ("." if n % 8 == 7 else "") for n in range(count)]
    return " ".join(made)


__all__ = ["SPEED", "TIMINGS", "Computer", "FastClock", "ProofWorld", "Reply", "patient_model", "words"]
