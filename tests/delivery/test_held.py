"""Answers that could not be delivered (DESIGN §3 Times)."""

from __future__ import annotations

import time

from meshai.delivery.outbox import Address
from meshai.radio.link import Heard, LinkState

ANNA, BEN = "!0000a001", "!0000b002"
KEY = bytes(range(32))
LONG = " ".join(f"Sentence number {n} tells something about radios." for n in range(10))


def stamp(when: float) -> str:
    return f"(re your {time.strftime('%H:%M', time.localtime(when))} question) "


async def lose(station):
    await station.nak("MAX_RETRANSMIT")
    await station.run(3)
    await station.nak("MAX_RETRANSMIT")
    await station.run(3)


async def test_held_parts_go_out_late_with_the_time_of_the_question(station):
    asked = station.clock.now() - 60
    await station.say(LONG, asked_at=asked)
    await station.settle()
    await station.ack()
    await station.run(3)
    await lose(station)
    assert await station.states() == ["delivered", "failed", "held", "held"]
    await station.heard()
    await station.run(3)
    await station.ack()
    await station.run(3)
    await station.ack()
    late = station.radio.texts[3:]
    assert late[0].startswith(f"[2/3] {stamp(asked)}")
    first = station.radio.texts[0][6:]
    assert f"{first} {late[0].split('question) ')[1]} {late[1][6:]}" == LONG


async def test_one_try_per_sighting_and_three_in_all(station):
    await station.say("Hi", asked_at=station.clock.now())
    await station.settle()
    await lose(station)
    for _ in range(6):
        await station.heard()
        await station.run(5)
        await station.nak("MAX_RETRANSMIT")
        await station.run(5)
    assert len(station.radio.sent) == 2 + 3
    assert (await station.packets())[-1].state == "failed"


async def test_held_answer_expires_honestly(station):
    await station.say("Hi")
    await station.settle()
    await lose(station)
    station.clock.advance(7201)
    await station.settle()
    await station.heard()
    await station.run(5)
    assert len(station.radio.sent) == 2
    assert await station.states() == ["failed", "expired"]


async def test_expired_answer_is_there_for_again(station):
    await test_held_answer_expires_honestly(station)
    again = await station.db.transaction(lambda tx: station.outbox.again(tx, Address(ANNA, KEY)))
    await station.run(3)
    assert again.parts == ("Hi",)
    assert station.radio.texts == ["Hi"] * 3


async def test_answer_too_late_for_its_first_part_is_held(station):
    """It is not sent blind after ttl_s."""
    station.radio.state = LinkState.DOWN
    await station.say(LONG, asked_at=station.clock.now())
    station.clock.advance(181)
    await station.settle()
    assert await station.states() == ["held"] * 3
    await station.link(LinkState.UP)
    await station.run(10)
    assert station.radio.sent == []
    await station.heard()
    await station.run(1)
    assert "(re your" in station.radio.texts[0]


async def test_later_parts_have_their_own_time(station):
    """After the first hand-over ttl_s does not count any longer."""
    await station.say(LONG)
    await station.settle()
    await station.link(LinkState.DOWN)
    station.clock.advance(400)
    await station.settle()
    assert (await station.states())[1:] == ["queued", "queued"]


async def test_late_command_replies_are_not_kept(station):
    station.radio.state = LinkState.DOWN
    await station.say("pong", kind="command")
    station.clock.advance(181)
    await station.settle()
    assert await station.states() == ["expired"]


async def test_hold_can_be_switched_off(station):
    station.reply = station.reply.model_copy(update={"hold_s": 0.0})
    await station.say("Hi")
    await station.settle()
    await lose(station)
    assert await station.states() == ["failed", "failed"]


async def test_busy_channel_holds_instead_of_expiring(station):
    station.radio.use = 45.0
    await station.say("Hi")
    await station.say("pong", to=BEN, kind="command")
    await station.settle()
    await station.ack()
    await station.run(200, tick=5)
    assert station.radio.texts == ["pong"]
    assert await station.states() == ["held", "delivered"]


async def test_late_ack_of_a_held_part_lets_the_rest_go(station):
    await station.say(LONG)
    await station.settle()
    first = station.radio.sent[0]
    await lose(station)
    assert (await station.states()).count("held") == 3
    await station.ack(first)
    await station.run(3)
    assert station.radio.texts[-1].startswith("[2/3]")


async def test_sighting_over_the_internet_is_none(station):
    await station.say("Hi")
    await station.settle()
    await lose(station)
    station.sender.on_heard(Heard(0xA001, station.clock.now(), via_mqtt=True))
    await station.run(5)
    assert len(station.radio.sent) == 2


async def test_undelivered_answer_marks_its_message(station):
    station.reply = station.reply.model_copy(update={"hold_s": 0.0})
    await station.db.transaction(
        lambda tx: tx.execute(
            "INSERT INTO conversations (id, key, kind, created_at, last_active) VALUES (1, 'dm:x', 'dm', 0, 0)"
        )
    )
    await station.db.transaction(
        lambda tx: tx.execute(
            "INSERT INTO messages (id, conv_id, seq, epoch, role, content, created_at)"
            " VALUES (9, 1, 0, 0, 'assistant', 'Hi', 0)"
        )
    )
    await station.say("Hi", message_id=9, conv_id=1)
    await station.settle()
    await lose(station)
    assert await station.db.fetch_value("SELECT status FROM messages WHERE id = 9") == "undelivered"
    await station.ack()
    assert await station.db.fetch_value("SELECT status FROM messages WHERE id = 9") == "final"
