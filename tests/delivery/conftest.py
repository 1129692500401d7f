from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from meshai.config.model import Airtime, Reply
from meshai.delivery.governor import Governor
from meshai.delivery.outbox import Address, Answer, Committed, Outbox
from meshai.delivery.sender import Sender
from meshai.errors import LinkDownError
from meshai.radio.link import (
    Alert,
    EventSink,
    Heard,
    LinkChange,
    LinkState,
    NodeInfo,
    Peer,
    Receipt,
    SendRequest,
    Telemetry,
    node_num,
)
from meshai.storage import outbound
from meshai.storage.database import Database
from meshai.storage.outbound import Packet

ANNA, BEN, CLEO = "!0000a001", "!0000b002", "!0000c003"
KEY = bytes(range(32))
OWN = 0x0BADCAFE


class FakeClock:
    """Time that moves only when told."""

    def __init__(self) -> None:
        self.wall, self.mono = 1_800_000_000.0, 500.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.mono += seconds


class FakeRadio:
    """A RadioLink that keeps what it is given, with the time."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._ids = clock, count(1000)
        self.state = LinkState.UP
        self.node: NodeInfo | None = NodeInfo(num=OWN, region="US")
        self.sent: list[SendRequest] = []
        self.times: list[float] = []
        self.refuse: Exception | None = None
        self.use: float | None = None
        self.air: float | None = None

    async def start(self, sink: EventSink) -> None:
        return

    async def stop(self) -> None:
        self.state = LinkState.STOPPED

    def new_packet_id(self) -> int:
        return next(self._ids)

    async def send(self, request: SendRequest) -> None:
        if self.state is not LinkState.UP:
            raise LinkDownError("no node")
        if self.refuse:
            raise self.refuse
        self.sent.append(request)
        self.times.append(self._clock.monotonic())

    def peer(self, num: int) -> Peer | None:
        return None

    def telemetry(self) -> Telemetry:
        return Telemetry(self.use, self.air)

    def status(self) -> dict[str, object]:
        return {}

    @property
    def texts(self) -> list[str]:
        return [request.text for request in self.sent]


class Station:
    """Database, outbox, governor and sender around a fake radio; can be restarted like a process."""

    def __init__(self, db: Database, clock: FakeClock) -> None:
        self.db, self.clock, self.radio = db, clock, FakeRadio(clock)
        self.reply, self.air = Reply(), Airtime(budget_percent=100.0)
        self.build()

    def build(self) -> None:
        radio = self.radio
        self.governor = Governor(lambda: self.air, self.clock, node=lambda: radio.node, telemetry=radio.telemetry)
        self.sender = Sender(self.db, radio, lambda: self.reply, self.clock, self.governor)
        self.outbox = Outbox(
            lambda: self.reply, self.clock, radio.new_packet_id, governor=self.governor, wake=self.sender.wake
        )

    async def restart(self) -> None:
        """The process died and came back: only the database is left."""
        self.build()
        await self.sender.prepare()

    async def say(self, text: str, to: str = ANNA, **kwargs) -> Committed:
        answer = Answer(Address(to, KEY), text, **{"kind": "answer", "hops_used": 1, **kwargs})
        return await self.db.transaction(lambda tx: self.outbox.commit(tx, answer))

    async def run(self, seconds: float, tick: float = 0.5) -> None:
        """Let time pass; the sender turns after every tick."""
        await self.settle()
        for _ in range(round(seconds / tick)):
            self.clock.advance(tick)
            await self.settle()

    async def settle(self) -> None:
        for _ in range(50):
            if await self.sender.step() > 0:
                return
        raise AssertionError("the sender never rests")

    def receipt(self, request: SendRequest, error: str = "NONE", *, implicit: bool = False) -> None:
        own = implicit or error != "NONE"
        self.sender.on_receipt(Receipt(request.packet_id, OWN if own else request.to_num, error, own))

    async def ack(self, request: SendRequest | None = None) -> None:
        self.receipt(request or self.radio.sent[-1])
        await self.settle()

    async def nak(self, error: str, request: SendRequest | None = None) -> None:
        self.receipt(request or self.radio.sent[-1], error)
        await self.settle()

    async def heard(self, node: str = ANNA) -> None:
        self.sender.on_heard(Heard(node_num(node), self.clock.now()))
        await self.settle()

    async def alert(self, text: str) -> None:
        self.sender.on_alert(Alert(text))
        await self.settle()

    async def link(self, state: LinkState) -> None:
        self.radio.state = state
        self.sender.on_link(LinkChange(state))
        await self.settle()

    async def packets(self) -> list[Packet]:
        rows = await self.db.fetch_all("SELECT id FROM outbound ORDER BY id")
        found = [await outbound.get(self.db, row[0]) for row in rows]
        return [packet for packet in found if packet is not None]

    async def states(self) -> list[str]:
        return [packet.state for packet in await self.packets() if packet.reason != outbound.SUPERSEDED]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def station(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Station]:
    db = await Database.open(tmp_path / "meshai.db")
    await db._writer.execute("PRAGMA synchronous = OFF")  # no power is cut here
    made = Station(db, clock)
    await made.sender.prepare()
    await made.settle()
    yield made
    await db.close()
