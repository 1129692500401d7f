from __future__ import annotations

from meshai.delivery.outbox import Address, Answer
from meshai.delivery.parts import MORE_HINT
from meshai.storage import answers, delivery_counts, outbound

ANNA, BEN = "!0000a001", "!0000b002"
KEY, OTHER = bytes(range(32)), bytes(32)
TO = Address(ANNA, KEY)
ENDLESS = " ".join(f"Sentence number {n} tells something about radios." for n in range(40))


async def tx(station, method, *args, **kwargs):
    return await station.db.transaction(lambda t: method(t, *args, **kwargs))


async def test_more_goes_on_until_nothing_is_left(station):
    said = [(await station.say(ENDLESS, asked_at=5.0)).parts]
    while (following := await tx(station, station.outbox.more, TO)) is not None:
        said.append(following.parts)
    text = " ".join(part.split(" ", 1)[1].removesuffix(MORE_HINT) for parts in said for part in parts)
    assert text == ENDLESS
    assert not said[-1][-1].endswith(MORE_HINT)


async def test_more_belongs_to_the_key_that_asked(station):
    await station.say(ENDLESS)
    assert await tx(station, station.outbox.more, Address(ANNA, OTHER)) is None
    assert await tx(station, station.outbox.more, Address(BEN, KEY)) is None


async def test_more_after_reset_finds_nothing(station):
    await station.say(ENDLESS)
    await tx(station, station.outbox.forget_rests, TO)
    assert await tx(station, station.outbox.more, TO) is None


async def test_command_reply_in_between_does_not_hide_the_rest(station):
    await station.say(ENDLESS)
    await station.say("pong", kind="command")
    assert (await tx(station, station.outbox.more, TO)).parts


async def test_again_sends_one_part_under_a_new_id(station):
    """Lost parts are the most repeated complaint; no model is asked."""
    await station.say(ENDLESS)
    for _ in range(3):
        await station.run(3)
        await station.ack()
    again = await tx(station, station.outbox.again, TO, 2)
    await station.run(3)
    assert again.parts == (station.radio.texts[1],)
    assert station.radio.texts[3] == station.radio.texts[1]
    assert station.radio.sent[3].packet_id != station.radio.sent[1].packet_id


async def test_again_does_not_double_what_is_on_its_way(station):
    await station.say("Hi")
    assert (await tx(station, station.outbox.again, TO)).parts == ()
    assert await tx(station, station.outbox.again, TO, 7) is None
    assert await tx(station, station.outbox.again, Address(BEN, KEY)) is None


async def test_stop_drops_what_is_not_sent(station):
    await station.say(ENDLESS)
    await station.say("for Ben", to=BEN)
    await station.settle()
    assert await tx(station, station.outbox.stop, TO) == 2
    await station.run(3)
    assert station.radio.texts[1:] == ["for Ben"]


async def test_tapback_shares_the_spacing_and_asks_no_receipt(station):
    """§3.5, §9.2: a tapback starts the two seconds, too."""
    await station.say("Hi", to=BEN)
    await tx(station, station.outbox.tapback, Answer(TO, "👀", reply_id=55, inbound_id=None))
    await station.run(10)
    nod = station.radio.sent[1]
    assert (nod.text, nod.reply_id, nod.is_tapback, nod.want_ack) == ("👀", 55, True, False)
    assert station.radio.times[1] - station.radio.times[0] == 2.5


async def test_tapback_does_not_wait_for_the_persons_receipts(station):
    await station.say("Hi")
    await tx(station, station.outbox.tapback, Answer(TO, "👀", reply_id=55))
    await station.run(3)
    assert station.radio.texts == ["Hi", "👀"]


async def test_late_tapback_is_not_sent(station):
    station.radio.use = 50.0
    await tx(station, station.outbox.tapback, Answer(TO, "👀", reply_id=55))
    await station.run(40, tick=5)
    station.radio.use = 0.0
    await station.run(20)
    assert station.radio.sent == []


async def test_answer_makes_its_tapback_superfluous(station):
    await station.db.transaction(
        lambda t: t.execute(
            "INSERT INTO inbound (id, node_id, packet_id, content, received_at, updated_at)"
            " VALUES (4, ?, 55, 'q', 0, 0)",
            (ANNA,),
        )
    )
    await tx(station, station.outbox.tapback, Answer(TO, "👀", inbound_id=4, reply_id=55))
    await station.say("Hi", inbound_id=4)
    await station.run(10)
    assert station.radio.texts == ["Hi"]


async def test_reply_never_looks_like_a_command(station):
    assert (await station.say("!help shows the commands")).parts == ("» !help shows the commands",)


async def test_channel_answer_is_one_broadcast_part(station):
    answer = Answer(Address(ANNA, KEY, channel_index=2), ENDLESS, hops_used=0)
    await tx(station, station.outbox.commit, answer)
    await station.run(3)
    (request,) = station.radio.sent
    assert (request.to_num, request.channel_index, request.public_key) == (0xFFFFFFFF, 2, None)
    station.receipt(request, implicit=True)
    await station.run(300, tick=5)
    assert await station.states() == ["relayed"]
    assert len(station.radio.sent) == 1


async def test_packet_leads_back_to_its_message_and_to_more(station):
    await station.say(ENDLESS)
    packet = (await station.packets())[0]
    assert await answers.offers_more(station.db, ANNA, packet.packet_id)
    assert not await answers.offers_more(station.db, BEN, packet.packet_id)
    assert await answers.message_of_packet(station.db, ANNA, packet.packet_id) is None


async def test_delivery_rate_counts_the_last_parts(station):
    for number in range(3):
        await station.say(f"answer {number}")
        await station.settle()
        await (station.ack() if number else station.nak("PKI_FAILED"))
        await station.run(3)
    assert await delivery_counts.recent_rate(station.db, ANNA) == (2, 3)


async def test_nothing_wakes_the_sender_before_the_commit(station):
    async def body(t):
        await station.outbox.commit(t, Answer(TO, "Hi"))
        assert not station.sender._wake.is_set()

    station.sender._wake.clear()
    await station.db.transaction(body)
    assert station.sender._wake.is_set()
    assert len(await outbound.queued(station.db)) == 1
