"""Everything at once: loss, flapping links, restarts, busy channels. Seeded, so a failure can be run again."""

from __future__ import annotations

import random

import pytest

from meshai.delivery.parts import unmark
from meshai.radio.link import Heard, LinkState, node_num
from meshai.storage import outbound

NODES = ["!0000a001", "!0000b002", "!0000c003"]
TEXT = " ".join(f"Sentence number {n} tells something about radios." for n in range(9))


class Peers:
    """The other side: what arrives there, once per id, and what it answers."""

    def __init__(self, station, rng):
        self.station, self.rng = station, rng
        self.arrived: dict[int, tuple[str, str]] = {}
        self.seen = 0
        self.mood = 1.0

    def answer(self):
        sent = self.station.radio.sent
        for request in sent[self.seen :]:
            luck = self.rng.random() * self.mood
            if luck < 0.75:
                self.arrived[request.packet_id] = (f"!{request.to_num:08x}", request.text)
            if luck < 0.55:
                self.station.receipt(request)
            elif luck < 0.8:
                self.station.receipt(request, implicit=True)
            elif luck < 0.9:
                self.station.receipt(request, "MAX_RETRANSMIT")
        self.seen = len(sent)


async def disturb(station, rng):
    luck = rng.random()
    if luck < 0.02:
        await station.restart()
    elif luck < 0.05:
        await station.link(LinkState.DOWN)
    elif luck < 0.20 and station.radio.state is LinkState.DOWN:
        await station.link(LinkState.UP)
    elif luck < 0.25:
        station.radio.use = rng.choice([0.0, 10.0, 30.0, 50.0])
    elif luck < 0.35:
        station.sender.on_heard(Heard(node_num(rng.choice(NODES)), station.clock.now()))


@pytest.mark.parametrize("seed", range(5))
async def test_no_part_is_lost_in_chaos(station, seed):
    rng = random.Random(seed)
    station.reply = station.reply.model_copy(update={"hold_s": 80000.0})
    peers = Peers(station, rng)
    for number in range(6):
        await station.say(f"Answer {number}. {TEXT}", to=NODES[number % 3], max_parts=9, asked_at=station.clock.now())
    for _ in range(200):
        await disturb(station, rng)
        await station.run(4, tick=4)
        peers.answer()
    peers.mood = 0.0
    station.radio.use = 0.0
    await station.link(LinkState.UP)
    for _ in range(200):
        await station.run(3, tick=3)
        peers.answer()
        station.sender.on_heard(Heard(node_num(rng.choice(NODES)), station.clock.now()))
    await station.run(2000, tick=20)
    await all_settled(station)
    for number in range(6):
        received = " ".join(text for node, text in peers.arrived.values() if node == NODES[number % 3])
        for sentence in ("Sentence number 0 tells", "Sentence number 8 tells"):
            assert sentence in received
    await every_delivered_part_arrived(station, peers)


async def all_settled(station):
    assert [p for p in await station.packets() if p.settled_at is None] == []
    newest = {(p.answer_id, p.part): p for p in await station.packets() if p.reason != outbound.SUPERSEDED}
    assert {p.state for p in newest.values()} <= {"delivered", "relayed", "sent", "expired", "failed"}


async def every_delivered_part_arrived(station, peers):
    """It tells the truth: delivered means that the other node confirmed this very packet."""
    for packet in await station.packets():
        if packet.state == "delivered":
            assert unmark(packet.content) in unmark(peers.arrived[packet.packet_id][1])


@pytest.mark.parametrize("seed", range(4))
async def test_confirmed_parts_arrive_exactly_once(station, seed):
    """Nothing is sent under a second id unless the first was known lost."""
    rng = random.Random(seed)
    peers = Peers(station, rng)
    for number in range(6):
        await station.say(TEXT.replace("radios", f"radios {number}"), to=NODES[number % 3], max_parts=9)
    for _ in range(200):
        await disturb(station, rng)
        station.radio.use = 0.0
        await station.run(3, tick=3)
        for request in station.radio.sent[peers.seen :]:
            peers.arrived[request.packet_id] = (f"!{request.to_num:08x}", request.text)
            station.receipt(request)
        peers.seen = len(station.radio.sent)
    await station.link(LinkState.UP)
    await station.run(100, tick=5)
    texts = [text for _, text in peers.arrived.values()]
    assert len(texts) == len(set(texts)) == len(await station.packets()) == 18
