"""From the library's packet dictionaries to values. Pure, and calm whatever it is given: no packet may raise.

The dictionaries come from protobuf's MessageToDict: zero and false fields are absent, bytes are base64 text,
enums are names (or numbers when unknown), floats may be the words NaN and Infinity (protocol.md §2.3).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence

from meshai.radio.link import BROADCAST_NUM, Alert, Channel, Decoding, Heard, Inbound, Receipt

TEXT_PORT = "TEXT_MESSAGE_APP"
ROUTING_PORT = "ROUTING_APP"
KEY_BYTES = 32
"""An X25519 public key (protocol.md §6)."""
MAX_HOPS = 7
"""HOP_MAX of the firmware (protocol.md §3.1); a larger number is damage."""


def decode(
    packet: object, *, own_num: int, now: float, backlog: bool = False, channels: Sequence[Channel] = ()
) -> list[Inbound | Receipt | Heard]:
    """What one packet means for the program, in the order it should hear of it; often nothing."""
    if not isinstance(packet, Mapping):
        return []
    from_num = _number(packet.get("from"))
    if not from_num:  # 0: a packet of ours that came back, the library drops it too
        return []
    decoded = packet.get("decoded")
    if not isinstance(decoded, Mapping):
        decoded = None
    port = decoded.get("portnum") if decoded is not None else None
    if port == ROUTING_PORT and decoded is not None:
        receipt = _receipt(from_num, packet, decoded, own_num)
        return [receipt] if receipt else []
    found: list[Inbound | Receipt | Heard] = []
    if from_num != own_num:
        heard = _heard(from_num, packet, now=now, backlog=backlog)
        found += [heard] if heard else []
    if port == TEXT_PORT or (decoded is None and "encrypted" in packet):
        inbound = _inbound(from_num, packet, decoded, own_num=own_num, now=now, backlog=backlog, channels=channels)
        found += [inbound] if inbound else []
    return found


def alert(notification: object) -> Alert | None:
    """A clientNotification protobuf as a value; None when it says nothing."""
    text = getattr(notification, "message", None)
    if not isinstance(text, str) or not text:
        return None
    reply_id = _number(getattr(notification, "reply_id", None))
    return Alert(text=text, reply_id=reply_id or None)


def key(value: object) -> bytes | None:
    """A public key from base64 text or bytes; None unless it has exactly 32 bytes."""
    if isinstance(value, str):
        try:
            value = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None
    return bytes(value) if isinstance(value, bytes | bytearray) and len(value) == KEY_BYTES else None


def number(value: object) -> int | None:
    """A whole number that really is one; None for anything else."""
    return _number(value)


def real(value: object) -> float | None:
    """A finite float; None for anything else, the words NaN and Infinity included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _signed(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _receipt(
    from_num: int, packet: Mapping[str, object], decoded: Mapping[str, object], own_num: int
) -> Receipt | None:
    """ROUTING answers with a request id; a route request or reply inside ROUTING is none (protocol.md §3.2)."""
    request_id = _number(decoded.get("requestId"))
    routing = decoded.get("routing")
    if not request_id or not isinstance(routing, Mapping) or "routeRequest" in routing or "routeReply" in routing:
        return None
    if _number(packet.get("to")) not in {own_num, None}:
        return None
    error = routing.get("errorReason", "NONE")
    name = error if isinstance(error, str) else f"ERROR_{error}"
    return Receipt(request_id, from_num, name, implicit=from_num == own_num and name == "NONE")


def _heard(from_num: int, packet: Mapping[str, object], *, now: float, backlog: bool) -> Heard | None:
    """``at`` of a queued packet is when the node heard it; without the node's word it proves nothing about now."""
    at = now
    if backlog:
        rx_time = _number(packet.get("rxTime"))
        if not rx_time:
            return None
        at = min(now, float(rx_time))
    hop_start, hop_limit = _hop_fields(packet)
    hops = hop_start - hop_limit if hop_start is not None and hop_limit is not None else None
    return Heard(
        from_num,
        at=at,
        hops=hops if hops is not None and hops >= 0 else None,
        snr=real(packet.get("rxSnr")),
        via_mqtt=packet.get("viaMqtt") is True,
    )


def _hop_fields(packet: Mapping[str, object]) -> tuple[int | None, int | None]:
    """hop_start and hop_limit, minding that zero fields vanish.

    An absent limit beside a start is zero hops left. An absent start means zero only from firmware that sets
    the bitfield; from older ones it means nothing (protocol.md §2.3).
    """
    decoded = packet.get("decoded")
    hop_start = _hops(packet.get("hopStart"))
    hop_limit = _hops(packet.get("hopLimit"))
    if hop_start is None and isinstance(decoded, Mapping) and "bitfield" in decoded and "hopStart" not in packet:
        hop_start = 0
    if hop_start is not None and "hopLimit" not in packet:
        hop_limit = 0
    return hop_start, hop_limit


def _hops(value: object) -> int | None:
    hops = _number(value)
    return hops if hops is not None and hops <= MAX_HOPS else None


def _inbound(
    from_num: int,
    packet: Mapping[str, object],
    decoded: Mapping[str, object] | None,
    *,
    own_num: int,
    now: float,
    backlog: bool,
    channels: Sequence[Channel],
) -> Inbound | None:
    """A text for us or for everybody, or something for us that the node could not open."""
    to_num = _number(packet.get("to")) or 0
    packet_id = _number(packet.get("id"))
    is_dm = to_num == own_num
    if not packet_id or (not is_dm and to_num != BROADCAST_NUM) or (decoded is None and not is_dm):
        return None
    decoding, text = _text(decoded)
    fields = decoded or {}
    index = _number(packet.get("channel")) or 0
    hop_start, hop_limit = _hop_fields(packet)
    return Inbound(
        from_num=from_num,
        to_num=to_num,
        packet_id=packet_id,
        decoding=decoding,
        text=text,
        channel_index=index,
        channel_name="" if is_dm else next((c.name for c in channels if c.index == index), ""),
        is_dm=is_dm,
        is_tapback=bool(_number(fields.get("emoji"))),
        reply_id=_number(fields.get("replyId")) or None,
        pki_encrypted=packet.get("pkiEncrypted") is True,
        public_key=key(packet.get("publicKey")),
        via_mqtt=packet.get("viaMqtt") is True,
        rx_time=_number(packet.get("rxTime")) or None,
        rx_snr=real(packet.get("rxSnr")),
        rx_rssi=_signed(packet.get("rxRssi")),
        hop_start=hop_start,
        hop_limit=hop_limit,
        received_at=now,
        backlog=backlog,
    )


def _text(decoded: Mapping[str, object] | None) -> tuple[Decoding, str]:
    """The text from the payload itself: the library's own ``text`` is missing when it failed (protocol.md §2.4)."""
    if decoded is None:
        return Decoding.ENCRYPTED, ""
    payload = decoded.get("payload", b"")
    if not isinstance(payload, bytes | bytearray):
        return Decoding.BAD_UTF8, ""
    try:
        return Decoding.TEXT, bytes(payload).decode("utf-8")
    except UnicodeDecodeError:
        return Decoding.BAD_UTF8, ""
