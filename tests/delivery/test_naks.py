"""What each refusal leads to (docs/protocol.md §3.2)."""

from __future__ import annotations

import pytest

from meshai.delivery import naks
from meshai.delivery.naks import Fate

ANNA, BEN = "!0000a001", "!0000b002"
LONG = " ".join(f"Sentence number {n} tells something about radios." for n in range(10))
ROUTING_ERRORS = [
    "NO_ROUTE", "GOT_NAK", "TIMEOUT", "NO_INTERFACE", "MAX_RETRANSMIT", "NO_CHANNEL", "TOO_LARGE", "NO_RESPONSE",
    "DUTY_CYCLE_LIMIT", "BAD_REQUEST", "NOT_AUTHORIZED", "PKI_FAILED", "PKI_UNKNOWN_PUBKEY", "RATE_LIMIT_EXCEEDED",
    "PKI_SEND_FAIL_PUBLIC_KEY",
]  # fmt: skip


async def sent(station, text="Hi", **kwargs):
    await station.say(text, **kwargs)
    await station.settle()
    return station.radio.sent[-1]


def test_every_refusal_has_a_fate():
    assert set(ROUTING_ERRORS) == set(naks.FATES)
    assert naks.fate_of("SOMETHING_NEW") is Fate.FAIL
    for reason in ROUTING_ERRORS:
        assert "{" not in naks.advice(reason, ANNA)


async def test_lost_part_is_sent_once_more_under_a_new_id(station):
    first = await sent(station)
    await station.nak("MAX_RETRANSMIT")
    await station.run(3)
    second = station.radio.sent[-1]
    assert second.text == first.text
    assert second.packet_id != first.packet_id
    await station.nak("MAX_RETRANSMIT")
    await station.run(300)
    assert len(station.radio.sent) == 2
    assert await station.states() == ["failed", "held"]


async def test_lost_part_waits_for_a_quiet_channel(station):
    await sent(station)
    station.radio.use = 30.0
    await station.nak("MAX_RETRANSMIT")
    await station.run(120)
    assert len(station.radio.sent) == 1
    station.radio.use = 10.0
    await station.run(20)
    assert len(station.radio.sent) == 2


async def test_silence_counts_as_lost_while_the_link_stands(station):
    await sent(station)
    await station.run(100)
    assert [packet.reason for packet in await station.packets()][:1] == ["no receipt"]
    assert len(station.radio.sent) == 2


async def test_real_ack_after_a_nak_wins(station):
    """§3.3: a NAK is final unless a real ACK follows."""
    first = await sent(station)
    station.radio.use = 30.0
    await station.nak("MAX_RETRANSMIT")
    await station.ack(first)
    await station.run(120)
    assert await station.states() == ["delivered"]
    assert len(station.radio.sent) == 1


async def test_nak_after_real_ack_says_nothing(station):
    await sent(station)
    await station.ack()
    await station.nak("MAX_RETRANSMIT")
    assert await station.states() == ["delivered"]


async def test_too_large_is_cut_smaller(station):
    """§9.3: one byte over is refused; nothing of the text is lost."""
    await sent(station, LONG)
    await station.nak("TOO_LARGE")
    for _ in range(6):
        await station.run(3)
        await station.ack()
    texts = station.radio.texts[1:]
    assert [text[:5] for text in texts] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert max(map(len, texts)) <= 156
    assert " ".join(text[6:] for text in texts) == LONG


async def test_duty_cycle_waits_what_the_node_says(station):
    await sent(station)
    await station.alert("Duty cycle limit exceeded. You can send again in 2 mins")
    await station.nak("DUTY_CYCLE_LIMIT")
    await station.say("pong", to=BEN, kind="command")
    await station.run(110)
    assert len(station.radio.sent) == 1
    await station.run(20)
    assert station.radio.texts[1:] == ["pong", "Hi"]


async def test_unknown_key_at_the_peer_is_tried_after_the_key_exchange(station):
    await sent(station)
    await station.nak("PKI_UNKNOWN_PUBKEY")
    await station.run(28)
    assert len(station.radio.sent) == 1
    await station.run(5)
    assert len(station.radio.sent) == 2


async def test_missing_key_holds_until_the_node_is_heard(station):
    await sent(station)
    await station.nak("PKI_SEND_FAIL_PUBLIC_KEY")
    assert await station.states() == ["held"]
    await station.run(10)
    await station.heard()
    assert len(station.radio.sent) == 2


@pytest.mark.parametrize("reason", ["PKI_FAILED", "NO_CHANNEL"])
async def test_changed_key_fails_and_says_the_fix(station, reason, caplog):
    await sent(station, LONG)
    await station.nak(reason)
    await station.run(60)
    assert await station.states() == ["failed"] * 3
    (problem,) = station.sender.status()["problems"]
    assert f"identity accept {ANNA}" in problem["advice"]
    assert f"identity accept {ANNA}" in caplog.text
    alarm = await station.db.fetch_value("SELECT key_alarm_at FROM nodes WHERE node_id = ?", (ANNA,))
    assert alarm is not None


async def test_same_refusal_is_logged_once_an_hour(station, caplog):
    for _ in range(3):
        await sent(station)
        await station.nak("PKI_FAILED")
        await station.run(3)
    assert caplog.text.count("PKI_FAILED") == 1
    assert station.sender.status()["problems"][0]["times"] == 3


async def test_rate_limit_is_tried_after_the_spacing(station):
    """§9.2: somebody else used the connection; the same id would be ignored."""
    first = await sent(station)
    await station.nak("RATE_LIMIT_EXCEEDED")
    await station.run(3)
    assert len(station.radio.sent) == 2
    assert station.radio.sent[1].packet_id != first.packet_id


async def test_relayed_part_is_sent_again_only_to_a_node_that_confirms(station):
    await sent(station)
    station.receipt(station.radio.sent[-1], implicit=True)
    await station.run(300)
    assert len(station.radio.sent) == 1  # it has never confirmed anything
    await sent(station, "second")
    await station.ack()
    await sent(station, "third")
    station.receipt(station.radio.sent[-1], implicit=True)
    await station.run(300)
    assert station.radio.texts == ["Hi", "second", "third", "third"]
    station.receipt(station.radio.sent[-1], implicit=True)
    await station.run(300)
    assert len(station.radio.sent) == 4


async def test_relayed_part_goes_again_after_the_last_part(station):
    await sent(station, "first")
    await station.ack()
    await station.run(3)
    await sent(station, LONG)
    station.receipt(station.radio.sent[-1], implicit=True)
    await station.run(15)
    await station.ack()
    await station.run(3)
    await station.ack()
    await station.run(200)
    assert [text[:5] for text in station.radio.texts[1:]] == ["[1/3]", "[2/3]", "[3/3]", "[1/3]"]


async def test_relayed_part_is_not_repeated_on_a_busy_channel(station):
    await sent(station, "first")
    await station.ack()
    station.radio.use = 30.0
    await station.run(3)
    await sent(station, "second")
    station.receipt(station.radio.sent[-1], implicit=True)
    await station.run(1500, tick=5)
    assert len(station.radio.sent) == 2
    assert await station.states() == ["delivered", "relayed", "expired"]


async def test_old_firmware_gets_answers_without_reply_id(station):
    """§3.3: before 2.7.12 a packet with a reply id is not confirmed over hops."""
    for number in range(3):
        await sent(station, f"answer {number}", reply_id=7)
        station.receipt(station.radio.sent[-1], implicit=True)
        await station.run(300, tick=5)
    assert (await sent(station, "next", reply_id=7)).reply_id is None


async def test_stray_receipts_are_ignored(station):
    """§9.1: every DM is accompanied by a receipt for an id we never sent."""
    from meshai.radio.link import Receipt

    for error in ("NONE", "MAX_RETRANSMIT"):
        station.sender.on_receipt(Receipt(424242, 0xA001, error, False))
    await station.settle()
    assert await station.packets() == []
