"""A virtual mesh and the real daemon on it, in one process: what the demo, the chat and the tests play on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from meshai.clock import Clock
from meshai.config.loader import Loaded
from meshai.config.model import Endpoint, Settings
from meshai.errors import CheckFailedError
from meshai.radio.link import LinkState, RadioLink
from meshai.radio.registry import open_link
from meshai.radio.timings import Timings
from meshai.radio.virtual import DefaultMesh, Phone, Sent, default_mesh
from meshai.service import Service
from meshai.storage.database import Database

T = TypeVar("T")

TIMINGS = Timings(backlog_quiet_s=0.2, backlog_max_s=2.0, backoff_min_s=0.1, backoff_max_s=1.0, linger_s=0.0)
"""The link's deadlines for a node on loopback: what only waits for a slow radio is short."""
START_S = 30.0
LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Part:
    """A packet of an answer as the daemon's outbox knows it."""

    packet_id: int
    part: int
    state: str
    reason: str
    settled: bool
    airtime_ms: int


class Stage:
    """``async with Stage(directory) as stage: await stage.start_bot()``; the directory is the caller's.

    ``speed`` is protocol seconds per real second. Settings that count real time are scaled with it, so that the bot
    keeps the pace of the mesh; ``sections`` (as in the configuration file) change any of them. ``direct``: the first
    phone, too, is within the bot's reach.
    """

    def __init__(
        self,
        directory: Path,
        *,
        speed: float = 20.0,
        seed: int = 1,
        loss: float = 0.05,
        direct: bool = False,
        endpoints: Iterable[Endpoint] = (),
        sections: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.directory = directory
        self.speed = speed
        self.virtual: DefaultMesh = default_mesh(speed=speed, seed=seed, loss=loss, direct=direct)
        self.database = directory / "meshai.db"
        self._endpoints = [endpoint.model_dump() for endpoint in endpoints]
        self._sections = sections or {}
        self._service: Service | None = None
        self._running: asyncio.Task[int] | None = None

    @property
    def bot(self) -> int:
        """The number of the bot's node."""
        return self.virtual.bot.num

    @property
    def phones(self) -> list[Phone]:
        """The people."""
        return self.virtual.phones

    @property
    def service(self) -> Service:
        """The running daemon."""
        assert self._service is not None, "the bot was not started"
        return self._service

    @property
    def db(self) -> Database:
        """The running daemon's database; for looking only."""
        assert self.service.daemon is not None
        return self.service.daemon.db

    def settings(self) -> Settings:
        """What the daemon is started with."""
        sections: dict[str, dict[str, Any]] = {
            "connection": {"type": "tcp", "tcp_host": self.virtual.bot_host, "tcp_port": self.virtual.bot_port},
            "reply": {"spacing_s": 2.5 / self.speed},
            "limits": {"per_node_per_hour": _scaled(30, self.speed, 1000), "per_hour": _scaled(60, self.speed, 10000)},
            # Channel use passes with the mesh's minutes, the governor looks again after real seconds: not held here.
            "airtime": {"budget_percent": min(100.0, 5.0 * self.speed), "slow_at_percent": 100, "hold_at_percent": 100},
            "llm": {"endpoints": self._endpoints},
            "storage": {"database": str(self.database)},
        }
        for name, values in self._sections.items():
            sections[name] = {**sections.get(name, {}), **values}
        return Settings.model_validate(sections)

    async def __aenter__(self) -> Self:
        await self.virtual.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(CheckFailedError):  # whatever it died of was told where it was noticed
            await self.stop_bot()
        await self.virtual.stop()

    def spare_last_hops(self) -> None:
        """Let the relay's own transmissions always be heard.

        A node whose packet was repeated by a relay does not repeat it itself: a loss behind the relay is final
        (protocol.md §3.3), which is no fit for a story that is told the same way each time.
        """
        virtual = self.virtual
        for radio, link in list(virtual.mesh.air.listeners(virtual.relay.num)):
            listener = virtual.mesh.nodes[radio.num]
            virtual.mesh.link(virtual.relay, listener, replace(link, loss=0.0), both_ways=False)

    async def start_bot(self) -> None:
        """Start the daemon and wait until it has its node. Raises what the daemon raises, and TimeoutError."""
        settings = self.settings()

        def link(clock: Clock) -> RadioLink:
            return open_link(settings.connection, clock, TIMINGS)

        env = {"RUNTIME_DIRECTORY": str(self.directory)}
        service = Service(Loaded(settings, None), env=env, open_link=link, signals=False)
        self._service = service
        self._running = asyncio.create_task(service.run(), name="daemon")
        async with asyncio.timeout(START_S):
            await self.while_running(service.ready.wait())
            assert service.daemon is not None
            while service.daemon.link.state is not LinkState.UP:
                await self.while_running(asyncio.sleep(LOOK_EVERY_S))

    async def stop_bot(self) -> None:
        """Stop the daemon cleanly. Raises what it died of."""
        running, self._running = self._running, None
        if self._service is None or running is None:
            return
        self._service.end()
        await asyncio.wait([running])
        _result(running)

    async def while_running(self, wanted: Awaitable[T]) -> T:
        """Await something of the daemon's; raises CheckFailedError, or what the daemon died of, when it ends first."""
        assert self._running is not None, "the bot was not started"
        waiting = asyncio.ensure_future(wanted)
        try:
            await asyncio.wait([waiting, self._running], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            _result(self._running)
            raise CheckFailedError("the daemon ended by itself")
        finally:
            waiting.cancel()

    async def parts(self, packet_id: int, node_id: str) -> list[Part] | None:
        """The packets that answer a question; None while the daemon has not made up its mind."""
        row = await self.db.fetch_one(
            "SELECT id, state FROM inbound WHERE packet_id = ? AND node_id = ?", (packet_id, node_id)
        )
        if row is None or row["state"] in ("received", "answering"):
            return None
        packets = await self.db.fetch_all(
            "SELECT o.* FROM outbound o JOIN answers a ON a.id = o.answer_id WHERE o.node_id = ?"
            " AND (a.inbound_id = ? OR a.id = (SELECT answer_id FROM inbound WHERE id = ?)) AND a.kind != 'tapback'"
            " ORDER BY o.id",
            (node_id, row["id"], row["id"]),
        )
        return [
            Part(p["packet_id"], p["part"], p["state"], p["reason"], p["settled_at"] is not None, p["airtime_ms"])
            for p in packets
        ]

    async def heard(self, sent: Sent, node_id: str) -> bool:
        """Whether the daemon has a text."""
        row = await self.db.fetch_one(
            "SELECT 1 FROM inbound WHERE packet_id = ? AND node_id = ?", (sent.packet_id, node_id)
        )
        return row is not None

    async def answered(self, phone: Phone, sent: Sent) -> list[Part]:
        """Wait until the answer to a text is complete on the phone, or will not come; bounded by the caller."""
        while True:
            parts = await self.parts(sent.packet_id, phone.node.id)
            if parts is not None and all(p.settled or p.state in _OVER for p in missing(parts, phone)):
                return parts
            await self.while_running(asyncio.sleep(LOOK_EVERY_S))

    async def settled(self, phone: Phone, sent: Sent, timeout_s: float) -> list[Part]:
        """The answer's packets once the bot knows what became of each, or after ``timeout_s`` as it knows it then."""
        parts: list[Part] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not parts or not all(part.settled for part in parts):
                    parts = await self.parts(sent.packet_id, phone.node.id) or parts
                    await self.while_running(asyncio.sleep(LOOK_EVERY_S))
        return parts


def missing(parts: list[Part], phone: Phone) -> list[Part]:
    """The parts of which no copy arrived on the phone, each as its newest copy."""
    have = {message.packet_id for message in phone.received}
    arrived = {part.part for part in parts if part.packet_id in have}
    newest = {part.part: part for part in parts}
    return [part for number, part in newest.items() if number not in arrived]


_OVER = frozenset({"failed", "expired", "held"})


def _scaled(per_hour: int, speed: float, most: int) -> int:
    return max(1, min(most, round(per_hour * max(1.0, speed))))


def _result(task: asyncio.Task[int]) -> None:
    if task.result() != 0:
        raise CheckFailedError("the daemon gave up")
