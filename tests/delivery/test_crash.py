"""After a crash or a lost link nothing is lost and nothing doubled (DESIGN §3 After a crash)."""

from __future__ import annotations

import random

import pytest

from meshai.radio.link import LinkState

ANNA, BEN = "!0000a001", "!0000b002"
LONG = " ".join(f"Sentence number {n} tells something about radios." for n in range(10))


async def test_queued_parts_are_sent_after_a_restart(station):
    await station.say("Hi")
    await station.restart()
    await station.settle()
    assert station.radio.texts == ["Hi"]


async def test_sent_part_without_receipt_is_repeated_under_the_same_id(station):
    await station.say("Hi")
    await station.settle()
    await station.restart()
    await station.run(5)
    first, second = station.radio.sent
    assert first.packet_id == second.packet_id
    await station.ack()
    assert await station.states() == ["delivered"]


async def test_repeat_without_receipt_stays_unknown(station):
    """Over serial the node swallows an id it remembers: silence is not known lost."""
    await station.say(LONG)
    await station.settle()
    await station.restart()
    await station.run(100)
    packets = await station.packets()
    assert (packets[0].state, packets[0].reason) == ("sent", "unknown")
    assert [text[:5] for text in station.radio.texts] == ["[1/3]", "[1/3]", "[2/3]"]


async def test_unknown_part_is_sent_again_only_on_demand(station):
    from meshai.delivery.outbox import Address

    await station.say("Hi")
    await station.settle()
    await station.restart()
    await station.run(1000, tick=10)
    await station.restart()
    await station.run(1000, tick=10)
    assert len(station.radio.sent) == 2
    await station.db.transaction(lambda tx: station.outbox.again(tx, Address(ANNA, bytes(range(32)))))
    await station.run(3)
    assert len(station.radio.sent) == 3
    assert station.radio.sent[2].packet_id != station.radio.sent[0].packet_id


async def test_relayed_part_is_not_sent_again_after_a_crash(station):
    """Its ACK may have died with the process: a copy under a new id would arrive twice."""
    await station.say("I have confirmed before")
    await station.settle()
    await station.ack()
    await station.say(LONG)
    await station.run(3)
    station.receipt(station.radio.sent[-1], implicit=True)
    await station.settle()
    await station.restart()
    for _ in range(2):
        await station.run(5)
        await station.ack()
    await station.run(60)
    assert [text[:5] for text in station.radio.texts[1:]] == ["[1/3]", "[2/3]", "[3/3]"]
    packet = (await station.packets())[1]
    assert (packet.state, packet.reason) == ("relayed", "unknown")


async def test_old_sent_part_is_not_repeated(station):
    """The mesh has forgotten the id after ten minutes: a repeat would arrive twice."""
    await station.say("Hi")
    await station.settle()
    station.clock.advance(700)
    await station.restart()
    await station.run(10)
    assert len(station.radio.sent) == 1


async def test_each_reconnect_repeats_the_same_id_within_bounds(station):
    """The packet may be lost in each broken connection; a flapping link must not fill the air."""
    await station.say("Hi")
    await station.settle()
    for count in (2, 3, 4, 4, 4):
        await station.link(LinkState.DOWN)
        await station.link(LinkState.UP)
        await station.run(5)
        assert len(station.radio.sent) == count
    assert len({request.packet_id for request in station.radio.sent}) == 1
    assert (await station.packets())[0].reason == "unknown"


async def test_receipt_kept_by_the_node_prevents_the_repeat(station):
    """§9.7: a reconnecting client receives the receipts it missed."""
    await station.say("Hi")
    await station.settle()
    await station.link(LinkState.DOWN)
    await station.link(LinkState.UP)
    await station.ack()
    await station.run(10)
    assert len(station.radio.sent) == 1
    assert await station.states() == ["delivered"]


async def test_spacing_holds_over_a_restart(station):
    await station.say("one", to=ANNA)
    await station.settle()
    await station.say("two", to=BEN)
    await station.restart()
    await station.run(6)
    assert station.radio.times[1] - station.radio.times[0] >= 2.5


async def test_jumping_clock_neither_expires_nor_delays(station):
    """A Pi has no clock before the network is there."""
    station.radio.state = LinkState.DOWN
    await station.say("Hi")
    await station.settle()
    station.clock.wall += 3 * 365 * 86400
    await station.settle()
    assert await station.states() == ["queued"]
    station.clock.wall -= 5 * 365 * 86400
    station.clock.advance(181)
    await station.settle()
    assert await station.states() == ["held"]


class KilledError(Exception):
    """The process died here."""


@pytest.mark.parametrize("seed", range(12))
async def test_kills_between_any_two_transactions_lose_and_double_nothing(station, seed):
    """The mesh drops a repeated id; whatever arrives under a new id would be a double."""
    rng = random.Random(seed)
    arrived: dict[int, str] = {}
    transaction = type(station.db).transaction

    async def mortal(body):
        if rng.random() < 0.15:
            raise KilledError
        result = await transaction(station.db, body)
        if rng.random() < 0.15:
            raise KilledError
        return result

    questions = [(node, f"Answer {n} for {node}. {LONG}") for n in range(3) for node in (ANNA, BEN)]
    for node, text in questions:
        await station.say(text, to=node, max_parts=9)
    station.db.transaction = mortal
    acked = 0
    for _ in range(400):
        try:
            await station.run(1.0, tick=1.0)
            for request in station.radio.sent[acked:]:
                arrived.setdefault(request.packet_id, request.text)
                acked += 1
                station.receipt(request)
            await station.settle()
        except KilledError:
            await station.restart()
    station.db.transaction = lambda body: transaction(station.db, body)
    await station.run(300, tick=5)
    assert [p.state for p in await station.packets() if p.state not in ("delivered", "sent")] == []
    expected = sorted(row[0] for row in await station.db.fetch_all("SELECT content FROM outbound"))
    assert sorted(arrived.values()) == expected
