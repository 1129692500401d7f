"""The link over a real TCP connection and a real pseudo terminal, through the stock library."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from meshtastic.protobuf import mesh_pb2
from support.wire_node import FAST, KEY, OWN, PEER, mail

from meshai.errors import LinkDownError, NotOnAirError
from meshai.radio.link import Alert, Heard, Inbound, LinkChange, LinkState, Receipt, SendRequest
from meshai.radio.session import payload_of


def request(link, text="hello", **fields):
    return SendRequest(link.new_packet_id(), PEER, text, **fields)


def answer(packet_id, *, sender=PEER, error=0):
    """A ROUTING answer."""
    frame = mesh_pb2.FromRadio()
    setattr(frame.packet, "from", sender)
    frame.packet.to, frame.packet.id = OWN, 9
    payload = mesh_pb2.Routing(error_reason=error).SerializeToString()
    frame.packet.decoded.CopyFrom(mesh_pb2.Data(portnum=5, payload=payload, request_id=packet_id))
    return {"packet": frame.packet}


async def test_link_comes_up_and_knows_its_node(up):
    link, watcher = up
    assert [change.state for change in watcher.of(LinkChange)] == [LinkState.CONNECTING, LinkState.UP]
    assert (link.node.num, link.node.firmware, link.node.region) == (OWN, "2.7.26.54e0d8d", "EU_868")
    assert link.node.channels[0].has_default_key
    assert link.peer(PEER).long_name == "Node b0b00002"
    assert (link.status()["node"], link.must_restart()) == ("!a11ce001", "")


async def test_text_reaches_the_sink(wire, up):
    _, watcher = up
    wire.deliver("héllo", 7)
    message = await watcher.until(lambda: watcher.of(Inbound))
    assert (message[0].text, message[0].packet_id, message[0].public_key) == ("héllo", 7, KEY)
    assert watcher.of(Heard)[0].from_num == PEER


async def test_packet_is_written_as_committed(wire, up):
    link, watcher = up
    sent = request(link, reply_id=77, hop_limit=5, public_key=KEY)
    await link.send(sent)
    packet = await watcher.until(wire.texts)
    assert (packet[0].id, packet[0].to, getattr(packet[0], "from")) == (sent.packet_id, PEER, OWN)
    assert (packet[0].hop_limit, packet[0].want_ack, packet[0].pki_encrypted, packet[0].public_key) == (
        5,
        True,
        True,
        KEY,
    )
    assert (packet[0].decoded.payload, packet[0].decoded.reply_id, packet[0].decoded.emoji) == (b"hello", 77, 0)


async def test_tapback_is_written_as_emoji(wire, up):
    link, watcher = up
    await link.send(request(link, "👀", is_tapback=True, reply_id=77, want_ack=False))
    packet = (await watcher.until(wire.texts))[0]
    assert (packet.decoded.emoji, packet.decoded.reply_id, packet.want_ack) == (1, 77, False)


async def test_receipts_are_matched_by_request_id(wire, up):
    """§3.3, §3.4: implicit and real answers both arrive, without onResponse."""
    link, watcher = up
    sent = request(link)
    await link.send(sent)
    wire.say(**answer(sent.packet_id, sender=OWN))
    wire.say(**answer(sent.packet_id))
    wire.say(**answer(sent.packet_id, error=5))
    await watcher.until(lambda: len(watcher.of(Receipt)) == 3)
    assert [(r.packet_id == sent.packet_id, r.error, r.implicit) for r in watcher.of(Receipt)] == [
        (True, "NONE", True),
        (True, "NONE", False),
        (True, "MAX_RETRANSMIT", False),
    ]


async def test_notification_is_an_alert(wire, up):
    _, watcher = up
    wire.say(clientNotification={"message": "You can send again in 5 mins", "reply_id": 3})
    assert (await watcher.until(lambda: watcher.of(Alert)))[0] == Alert("You can send again in 5 mins", 3)


async def test_queued_mail_is_marked_as_backlog(wire, connect):
    """§2.5: DMs received while the bot was away come right after the configuration."""
    wire.backlog = [mail(f"old {number}", 100 + number) for number in range(16)]
    _, watcher = await connect()
    await watcher.until(lambda: len(watcher.of(Inbound)) == 16)
    assert all(message.backlog for message in watcher.of(Inbound))
    assert watcher.events.index(watcher.of(Inbound)[0]) > [isinstance(e, LinkChange) for e in watcher.events].index(
        True
    )
    await asyncio.sleep(FAST.backlog_quiet_s * 1.5)
    wire.deliver("new", 7)
    await watcher.until(lambda: len(watcher.of(Inbound)) == 17)
    assert not watcher.of(Inbound)[-1].backlog


async def test_node_gets_our_time_after_connecting(wire, up):
    """§2.3: without it queued messages have no date."""
    _, watcher = up
    admin = await watcher.until(lambda: [p for p in wire.admin() if b"\x02" in p.decoded.payload])
    assert admin[0].to == OWN


async def test_favourite_and_removal_reach_the_node(wire, up):
    from meshtastic.protobuf import admin_pb2

    link, _ = up
    await link.set_favourite(PEER)
    await link.remove_node(PEER)
    commands = [admin_pb2.AdminMessage.FromString(packet.decoded.payload) for packet in wire.admin()]
    assert PEER in [command.set_favorite_node for command in commands]
    assert PEER in [command.remove_by_nodenum for command in commands]


@pytest.mark.parametrize(("text", "reason"), [("x" * 234, "TOO_LARGE"), ("", "BAD_REQUEST"), ("\ud800", "BAD_REQUEST")])
def test_impossible_text_is_refused_before_writing(text, reason):
    with pytest.raises(NotOnAirError) as caught:
        payload_of(SendRequest(1, PEER, text))
    assert caught.value.reason == reason


async def test_malformed_request_costs_itself_only(up):
    """B.3: one poisoned message must not block or break the link for the others."""
    link, _ = up
    with pytest.raises(NotOnAirError, match="BAD_REQUEST"):
        await link.send(SendRequest(link.new_packet_id(), 2**40, "x"))
    await link.send(request(link))
    assert link.state is LinkState.UP


async def test_full_node_queue_is_said_and_not_waited_for(wire, connect):
    """§3.6: the library would spin for ever at free == 0; a node without radio reports just that."""
    wire.free = 0
    link, watcher = await connect()
    await watcher.ups(1)
    await watcher.until(lambda: link.status()["queue_free"] == 0)
    with pytest.raises(NotOnAirError, match="queue full"):
        await link.send(request(link))
    assert (wire.texts(), link.state) == ([], LinkState.UP)
    wire.free = 16
    await link.send(request(link))
    assert len(await watcher.until(wire.texts)) == 1


async def test_send_without_node_says_link_down(wire, connect):
    await wire.refuse()
    link, watcher = await connect()
    await watcher.change(LinkState.DOWN)
    with pytest.raises(LinkDownError):
        await link.send(request(link))


async def test_packet_ids_are_unique_and_never_zero(connect):
    link, _ = await connect()
    ids = [link.new_packet_id() for _ in range(3000)]
    assert all(0 < packet_id <= 0xFFFFFFFF for packet_id in ids)
    assert len(set(ids)) == len(ids)
    assert {(b - a) & 0x3FF for a, b in pairwise(ids)} == {1}


async def test_start_and_stop_leave_nothing_behind(wire, connect):
    for _ in range(2):
        link, watcher = await connect()
        await watcher.ups(1)
        await link.stop()
        assert watcher.of(LinkChange)[-1].state is LinkState.STOPPED
    with pytest.raises(LinkDownError):
        await link.send(request(link))


async def test_stop_during_the_handshake_is_bounded(wire, connect):
    wire.answers_config = False
    link, watcher = await connect(replace(FAST, silence_s=30.0, handshake_s=60.0))
    await watcher.change(LinkState.CONNECTING)
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await link.stop()


async def test_listener_that_fails_does_not_stop_the_others(wire, connect, caplog):
    link, watcher = await connect()
    await watcher.ups(1)
    inner = link._sink

    def fail(event):
        inner(event)
        raise ValueError("boom")

    link._sink = fail
    for number in (1, 2):
        wire.deliver("x", number)
    await watcher.until(lambda: len(watcher.of(Inbound)) == 2)
    assert "the receiver of link events failed" in caplog.text
