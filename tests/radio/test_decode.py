"""Packets as the library hands them over, real and mutilated (docs/protocol.md §2.3, §2.4, §3.2, §9)."""

import base64
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshai.radio.decode import alert, decode
from meshai.radio.link import BROADCAST_NUM, Alert, Channel, Decoding, Heard, Inbound, Receipt

OWN, PEER, NOW = 0xA11CE001, 0xB0B00002, 1_795_250_000.0
KEY = bytes(range(32))


def text_packet(**changes):
    """A PKI text DM with every field a radio sets."""
    packet = {
        "from": PEER,
        "to": OWN,
        "id": 2053160803,
        "decoded": {"portnum": "TEXT_MESSAGE_APP", "payload": "héllo".encode(), "text": "héllo", "bitfield": 1},
        "rxTime": 1795245267,
        "rxSnr": 5.5,
        "rxRssi": -71,
        "hopLimit": 2,
        "hopStart": 3,
        "wantAck": True,
        "publicKey": base64.b64encode(KEY).decode(),
        "pkiEncrypted": True,
        "fromId": None,
    }
    packet.update(changes)
    return {name: value for name, value in packet.items() if value is not ...}


def run(packet, **options):
    return decode(packet, own_num=OWN, now=NOW, **options)


def inbound(packet, **options):
    return next(value for value in run(packet, **options) if isinstance(value, Inbound))


def test_pki_dm_arrives_with_its_key():
    message = inbound(text_packet())
    assert (message.text, message.is_dm, message.authenticated, message.public_key) == ("héllo", True, True, KEY)
    assert (message.hops, message.rx_snr, message.rx_rssi, message.rx_time) == (1, 5.5, -71, 1795245267)


def test_heard_precedes_the_text():
    heard, message = run(text_packet())
    assert heard == Heard(PEER, at=NOW, hops=1, snr=5.5)
    assert isinstance(message, Inbound)


def test_bare_packet_is_enough():
    """Packets without fromId, rxTime, hopStart (§2.3)."""
    message = inbound({"from": PEER, "to": OWN, "id": 5, "decoded": {"portnum": "TEXT_MESSAGE_APP", "payload": b"x"}})
    assert (message.text, message.rx_time, message.hops, message.public_key) == ("x", None, None, None)
    assert not message.authenticated


def test_pki_flag_without_key_is_not_authenticated():
    assert not inbound(text_packet(publicKey=...)).authenticated  # §9.6


@pytest.mark.parametrize("key", ["", "AAAA", "not base64!", 7, None, base64.b64encode(b"x" * 33).decode()])
def test_odd_public_key_counts_as_none(key):
    assert inbound(text_packet(publicKey=key)).public_key is None


def test_undecodable_dm_is_reported_as_encrypted():
    message = inbound(text_packet(decoded=..., encrypted="AAAA", publicKey=...))  # §9.6
    assert (message.decoding, message.text, message.authenticated) == (Decoding.ENCRYPTED, "", False)


def test_undecodable_broadcast_is_only_heard():
    assert [type(value) for value in run(text_packet(decoded=..., encrypted="AAAA", to=BROADCAST_NUM))] == [Heard]


def test_invalid_utf8_is_told_apart():
    message = inbound(text_packet(decoded={"portnum": "TEXT_MESSAGE_APP", "payload": b"\xff\xfe"}))
    assert (message.decoding, message.text) == (Decoding.BAD_UTF8, "")


def test_empty_payload_is_an_empty_text():
    message = inbound(text_packet(decoded={"portnum": "TEXT_MESSAGE_APP"}))  # §9.14
    assert (message.decoding, message.text) == (Decoding.TEXT, "")


def test_tapback_and_reply_id_are_found_in_decoded():
    """M15: another bot looked for emoji beside ``decoded`` and answered every thumb."""
    fields = {"portnum": "TEXT_MESSAGE_APP", "payload": "👍".encode(), "emoji": 1, "replyId": 77}
    message = inbound(text_packet(decoded=fields))
    assert (message.is_tapback, message.reply_id, message.text) == (True, 77, "👍")


def test_broadcast_knows_its_channel_name():
    message = inbound(text_packet(to=BROADCAST_NUM, channel=2), channels=[Channel(0, "LongFast"), Channel(2, "bot")])
    assert (message.is_dm, message.channel_index, message.channel_name) == (False, 2, "bot")


def test_text_for_somebody_else_is_only_heard():
    assert [type(value) for value in run(text_packet(to=0x12345678))] == [Heard]


def test_absent_hop_limit_means_none_left():
    assert inbound(text_packet(hopLimit=...)).hops == 3


def test_direct_neighbour_has_zero_hops_by_the_bitfield():
    assert inbound(text_packet(hopStart=..., hopLimit=...)).hops == 0
    old = {"portnum": "TEXT_MESSAGE_APP", "payload": b"x"}
    assert inbound(text_packet(hopStart=..., hopLimit=..., decoded=old)).hops is None


def test_impossible_hops_are_unknown():
    assert inbound(text_packet(hopStart=4_000_000_000)).hops is None


@pytest.mark.parametrize("snr", ["NaN", "Infinity", math.nan, math.inf, True, None])
def test_snr_that_is_no_number_is_unknown(snr):
    assert inbound(text_packet(rxSnr=snr)).rx_snr is None


def routing(**changes):
    decoded = {"portnum": "ROUTING_APP", "payload": b"\x18\x00", "requestId": 99, "routing": {"errorReason": "NONE"}}
    return {"from": PEER, "to": OWN, "id": 1, "decoded": decoded, **changes}


def test_ack_of_the_destination_is_real():
    assert run(routing()) == [Receipt(99, PEER, "NONE", implicit=False)]


def test_ack_of_the_own_node_is_implicit():
    assert run(routing(**{"from": OWN})) == [Receipt(99, OWN, "NONE", implicit=True)]  # §3.3


def test_nak_of_the_own_node_is_not_implicit():
    decoded = {"portnum": "ROUTING_APP", "requestId": 99, "routing": {"errorReason": "MAX_RETRANSMIT"}}
    assert run(routing(**{"from": OWN, "decoded": decoded})) == [Receipt(99, OWN, "MAX_RETRANSMIT", implicit=False)]


def test_absent_error_reason_is_an_ack():
    decoded = {"portnum": "ROUTING_APP", "requestId": 99, "routing": {}}
    assert run(routing(decoded=decoded)) == [Receipt(99, PEER, "NONE", implicit=False)]


def test_unknown_error_number_is_kept_as_failure():
    decoded = {"portnum": "ROUTING_APP", "requestId": 99, "routing": {"errorReason": 77}}
    assert run(routing(decoded=decoded))[0].error == "ERROR_77"


@pytest.mark.parametrize("routing_field", [{"routeReply": {}}, {"routeRequest": {}}, None, "x"])
def test_routing_that_is_no_receipt_is_silence(routing_field):
    decoded = {"portnum": "ROUTING_APP", "requestId": 99, "routing": routing_field}
    assert run(routing(decoded=decoded)) == []


def test_receipt_for_another_node_is_ignored():
    assert run(routing(to=0x12345678)) == []


def test_routing_answer_does_not_count_as_heard():
    assert not [value for value in run(routing()) if isinstance(value, Heard)]  # DESIGN §3 Times


def test_position_of_a_peer_is_heard():
    assert run({"from": PEER, "to": BROADCAST_NUM, "decoded": {"portnum": "POSITION_APP"}}) == [Heard(PEER, at=NOW)]


def test_own_telemetry_is_silence():
    assert run({"from": OWN, "to": BROADCAST_NUM, "decoded": {"portnum": "TELEMETRY_APP"}}) == []


def test_queued_packet_is_heard_at_its_own_time():
    heard, message = run(text_packet(rxTime=1_795_240_000), backlog=True)
    assert (heard.at, message.backlog) == (1_795_240_000.0, True)


def test_queued_packet_without_time_proves_nothing_about_now():
    assert [type(value) for value in run(text_packet(rxTime=...), backlog=True)] == [Inbound]


def test_queued_packet_from_the_future_is_heard_now():
    assert run(text_packet(rxTime=2_000_000_000), backlog=True)[0].at == NOW


class Notification:
    message = "You can send again in 5 mins"
    reply_id = 42


def test_notification_becomes_an_alert():
    assert alert(Notification()) == Alert("You can send again in 5 mins", 42)
    assert alert(object()) is None


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8)
FIELDS = st.sampled_from(
    [
        "from",
        "to",
        "id",
        "decoded",
        "encrypted",
        "channel",
        "publicKey",
        "pkiEncrypted",
        "rxTime",
        "rxSnr",
        "rxRssi",
        "hopStart",
        "hopLimit",
        "viaMqtt",
        "portnum",
        "payload",
        "emoji",
        "replyId",
        "requestId",
        "routing",
        "errorReason",
        "bitfield",
    ]
)
ANYTHING = st.recursive(
    SCALARS | st.sampled_from(["TEXT_MESSAGE_APP", "ROUTING_APP", OWN, PEER, BROADCAST_NUM]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=8),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(packet=ANYTHING, changes=st.dictionaries(FIELDS, ANYTHING, max_size=4), backlog=st.booleans())
def test_no_packet_can_raise(packet, changes, backlog):
    run(packet, backlog=backlog)
    for value in run({**text_packet(), **changes}, backlog=backlog):
        assert value.from_num != 0
        if isinstance(value, Inbound):
            assert value.hops is None or 0 <= value.hops <= 7
            assert value.public_key is None or len(value.public_key) == 32


@settings(max_examples=100, deadline=None)
@given(decoded=st.dictionaries(FIELDS, ANYTHING, max_size=6), port=st.sampled_from(["TEXT_MESSAGE_APP", "ROUTING_APP"]))
def test_no_decoded_part_can_raise(decoded, port):
    run(text_packet(decoded={**decoded, "portnum": port}))
