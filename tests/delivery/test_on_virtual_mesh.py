"""End to end: outbox, sender, the stock library over TCP, the virtual node, lossy air, a phone."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from meshai.config.model import Airtime, Connection, Reply
from meshai.delivery.governor import Governor
from meshai.delivery.outbox import Address, Answer, Outbox
from meshai.delivery.sender import Sender
from meshai.radio.link import Alert, Heard, LinkChange, LinkState, Receipt, node_id
from meshai.radio.registry import open_link
from meshai.radio.timings import Timings
from meshai.radio.virtual import default_mesh
from meshai.storage import outbound
from meshai.storage.database import Database

SPEED = 100.0
LONG = " ".join(f"Sentence number {n} tells something about radios." for n in range(10))


class FastClock:
    """The mesh's time: as much faster than life as the mesh is."""

    def now(self) -> float:
        return 1_800_000_000 + self.monotonic()

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


class World:
    def __init__(self, virtual, db):
        self.virtual, self.db, self.clock = virtual, db, FastClock()
        self.bot, self.alice, self.bob = virtual.bot, *virtual.phones
        connection = Connection(type="tcp", tcp_host=virtual.bot_host, tcp_port=virtual.bot_port)
        timings = Timings(backoff_min_s=0.05, backoff_max_s=0.2, backlog_quiet_s=0.05, linger_s=0.0)
        from meshai.clock import SystemClock

        self.link = open_link(connection, SystemClock(), timings)
        self.reply = Reply(spacing_s=6.0)  # 60 ms of real time: a busy machine is late by some
        self.governor = Governor(
            lambda: Airtime(budget_percent=100.0),
            self.clock,
            node=lambda: self.link.node,
            telemetry=self.link.telemetry,
        )
        self.sender = Sender(db, self.link, lambda: self.reply, self.clock, self.governor)
        self.outbox = Outbox(
            lambda: self.reply, self.clock, self.link.new_packet_id, governor=self.governor, wake=self.sender.wake
        )

    def sink(self, event):
        match event:
            case Receipt():
                self.sender.on_receipt(event)
            case LinkChange():
                self.sender.on_link(event)
            case Heard():
                self.sender.on_heard(event)
            case Alert():
                self.sender.on_alert(event)

    async def start(self):
        await self.sender.start()
        await self.link.start(self.sink)
        await self.until(lambda: self.link.state is LinkState.UP)

    async def stop(self):
        await self.sender.stop()
        await self.link.stop()

    async def say(self, text, phone):
        to = Address(node_id(phone.num), phone.node.public_key)
        answer = Answer(to, text, hops_used=1, asked_at=self.clock.now())
        return await self.db.transaction(lambda tx: self.outbox.commit(tx, answer))

    async def states(self):
        rows = await self.db.fetch_all(
            "SELECT state FROM outbound WHERE reason <> ? ORDER BY id", (outbound.SUPERSEDED,)
        )
        return [row[0] for row in rows]

    async def until_states(self, *states):
        async with asyncio.timeout(30):
            while tuple(await self.states()) != states:
                await asyncio.sleep(0.01)

    async def until(self, condition):
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path):
    async with AsyncExitStack() as stack:
        db = await Database.open(tmp_path / "meshai.db")
        stack.push_async_callback(db.close)
        virtual = default_mesh(speed=SPEED, loss=0.0)
        await virtual.start()
        stack.push_async_callback(virtual.stop)
        made = World(virtual, db)
        stack.push_async_callback(made.stop)
        await made.start()
        yield made


def texts(phone):
    return [message.text for message in phone.received if message.text]


async def test_parts_arrive_in_order_and_confirmed(world):
    said = await world.say(LONG, world.alice)
    await world.until_states("delivered", "delivered", "delivered")
    assert tuple(texts(world.alice)) == said.parts
    assert all(message.pki for message in world.alice.received)


async def test_node_refuses_none_of_two_persons_answers(world):
    """§3.5: the node drops a second text within two seconds."""
    await world.say(LONG, world.alice)
    await world.say(LONG, world.bob)
    await world.until_states(*["delivered"] * 6)
    assert len(texts(world.alice)) == len(texts(world.bob)) == 3


async def test_lost_connection_doubles_nothing(world):
    said = await world.say(LONG, world.alice)
    for _ in range(3):
        await asyncio.sleep(0.1)
        world.virtual.port.drop()
        await world.until(lambda: world.link.state is LinkState.UP)
    async with asyncio.timeout(30):
        while not all(state in ("delivered", "sent") for state in await world.states()):
            await asyncio.sleep(0.01)
    await world.until(lambda: len(texts(world.alice)) == 3)
    assert tuple(texts(world.alice)) == said.parts


async def test_absent_node_gets_its_answer_when_it_is_heard(world):
    """D.1 6: late, once, with the time of the question."""
    for node in (world.alice.node, world.bob.node, world.virtual.relay):
        node.switch_off()  # nobody repeats it: known lost
    await world.say("The answer.", world.alice)
    await world.until_states("failed", "held")
    world.virtual.relay.switch_on()
    world.alice.node.switch_on()
    await asyncio.sleep(0.2)
    await world.alice.send_dm(world.bot, "hello?")
    await world.until_states("failed", "delivered")
    (late,) = texts(world.alice)
    assert late.startswith("(re your ")
    assert late.endswith("The answer.")


async def test_too_large_packet_is_cut_smaller(world):
    """§9.3: the virtual node refuses one byte over as the firmware does."""
    world.reply = world.reply.model_copy(update={"max_bytes": 240})
    await world.say(LONG, world.alice)
    await world.until(lambda: len(texts(world.alice)) == 3)
    joined = " ".join(text.split("] ")[1] for text in texts(world.alice))
    assert joined == LONG


async def test_missing_key_is_explained_and_the_answer_kept(world):
    """§9.4: our node has no key of the peer; nothing is sent."""
    world.bot.database.forget(world.alice.num)
    await world.say("Hi", world.alice)
    await world.until_states("held")
    assert "exchange node information" in world.sender.status()["problems"][0]["advice"]
    assert texts(world.alice) == []
