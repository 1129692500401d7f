from __future__ import annotations

import pytest

from meshai.errors import NotOnAirError
from meshai.radio.link import LinkState

ANNA, BEN, CLEO = "!0000a001", "!0000b002", "!0000c003"
LONG = " ".join(f"Sentence number {n} tells something about radios." for n in range(10))


async def test_short_answer_leaves_at_once(station):
    await station.say("**Hello** there", reply_id=77)
    await station.settle()
    (request,) = station.radio.sent
    assert (request.text, request.reply_id, request.hop_limit) == ("Hello there", 77, 3)
    assert request.public_key == bytes(range(32))
    assert request.want_ack
    assert await station.states() == ["sent"]


async def test_next_part_waits_for_the_receipt(station):
    await station.say(LONG)
    await station.run(20)
    assert len(station.radio.sent) == 1
    await station.ack()
    assert [text[:5] for text in station.radio.texts] == ["[1/3]", "[2/3]"]


async def test_texts_keep_their_distance_for_everybody(station):
    """§3.5: a second text within 2 s is dropped by the node."""
    for node in (ANNA, BEN, CLEO):
        await station.say("Hi", to=node)
    await station.run(10)
    gaps = [b - a for a, b in zip(station.radio.times, station.radio.times[1:], strict=False)]
    assert gaps == [2.5, 2.5]


async def test_turns_are_fair_between_persons(station):
    await station.say(LONG, to=ANNA)
    await station.say(LONG, to=BEN)
    for _ in range(6):
        await station.run(3)
        for request in station.radio.sent:
            station.receipt(request)
        await station.settle()
    assert [request.to_num for request in station.radio.sent] == [0xA001, 0xB002] * 3


async def test_command_reply_goes_before_answers(station):
    await station.say("first", to=ANNA)
    await station.settle()
    await station.say("answer", to=BEN)
    await station.say("pong", to=CLEO, kind="command")
    await station.run(3)
    assert station.radio.texts == ["first", "pong"]


async def test_implicit_ack_is_never_delivered(station):
    """§3.3: relayed is all it says; the next part follows after it has travelled."""
    await station.say(LONG)
    await station.settle()
    station.receipt(station.radio.sent[0], implicit=True)
    await station.run(3)
    assert len(station.radio.sent) == 1
    await station.run(10)
    assert len(station.radio.sent) == 2
    assert (await station.states())[0] == "relayed"


async def test_real_ack_after_implicit_becomes_delivered(station):
    await station.say("Hi")
    await station.settle()
    station.receipt(station.radio.sent[0], implicit=True)
    await station.run(200)
    assert await station.states() == ["relayed"]
    await station.ack()
    assert await station.states() == ["delivered"]


async def test_ack_from_a_third_node_proves_nothing(station):
    from meshai.radio.link import Receipt

    await station.say("Hi")
    await station.settle()
    station.sender.on_receipt(Receipt(station.radio.sent[0].packet_id, 0xDEAD, "NONE", False))
    await station.settle()
    assert await station.states() == ["relayed"]


async def test_link_down_keeps_packets_queued(station):
    station.radio.state = LinkState.DOWN
    await station.say("Hi")
    await station.run(60)
    assert await station.states() == ["queued"]
    await station.link(LinkState.UP)
    assert station.radio.texts == ["Hi"]


async def test_full_node_queue_is_tried_again(station):
    station.radio.refuse = NotOnAirError("queue full")
    await station.say("Hi")
    await station.run(4)
    assert await station.states() == ["queued"]
    station.radio.refuse = None
    await station.run(10)
    assert station.radio.texts == ["Hi"]
    assert (await station.packets())[0].attempts == 1


async def test_reply_id_only_on_first_part(station):
    await station.say(LONG, reply_id=5)
    for _ in range(3):
        await station.run(3)
        await station.ack()
    assert [request.reply_id for request in station.radio.sent] == [5, None, None]


async def test_reply_id_left_out_where_it_does_not_fit(station):
    """§1: 215 bytes with a reply id in a PKI DM."""
    station.reply = station.reply.model_copy(update={"max_bytes": 220})
    await station.say("x" * 218, reply_id=5)
    await station.settle()
    assert station.radio.sent[0].reply_id is None


async def test_hop_limit_is_at_most_the_nodes_own(station):
    await station.say("Hi", hops_used=4)
    await station.settle()
    assert station.radio.sent[0].hop_limit == 3


@pytest.mark.parametrize("configured", [0.0, 20.0])
async def test_receipt_timeout_is_computed_or_configured(station, configured):
    station.reply = station.reply.model_copy(update={"ack_timeout_s": configured})
    await station.say("Hi")
    await station.run(21)
    assert len(station.radio.sent) == (2 if configured else 1)


async def test_delivery_counts_are_kept_per_node(station):
    await station.say(LONG)
    for _ in range(3):
        await station.run(3)
        await station.ack()
    row = await station.db.fetch_one("SELECT parts_sent, parts_delivered FROM nodes WHERE node_id = ?", (ANNA,))
    assert tuple(row) == (3, 3)
