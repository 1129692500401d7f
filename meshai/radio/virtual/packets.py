"""Building the protobufs a node hands to its client."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from meshtastic.protobuf import mesh_pb2

from meshai.radio.virtual.frame import (
    ACK,
    BACKGROUND,
    DEFAULT,
    HIGH,
    NODEINFO,
    ROUTING,
    TELEMETRY,
    TEXT,
    Error,
    Frame,
    Link,
)

_BY_PORT = {TEXT: HIGH, ROUTING: ACK, NODEINFO: BACKGROUND, TELEMETRY: BACKGROUND}
HARDWARE = mesh_pb2.HardwareModel.HELTEC_V3
OVER_LORA = mesh_pb2.MeshPacket.TransportMechanism.TRANSPORT_LORA


def data(portnum: int, payload: bytes = b"", **fields: int | bool) -> Any:  # noqa: ANN401
    """A Data message."""
    return mesh_pb2.Data(portnum=portnum, payload=payload, **fields)


def packet(from_num: int, to_num: int, packet_id: int, decoded: Any, **fields: Any) -> Any:  # noqa: ANN401
    """A MeshPacket."""
    made = mesh_pb2.MeshPacket(to=to_num, id=packet_id, decoded=decoded, **fields)
    setattr(made, "from", from_num)
    return made


def text(to_num: int, content: str | bytes, *, channel: int = 0, want_ack: bool = True, **fields: int | bool) -> Any:  # noqa: ANN401
    """A text as a client hands it to its node; ``fields`` are those of Data (reply_id, emoji, want_response)."""
    payload = content.encode() if isinstance(content, str) else content
    return mesh_pb2.MeshPacket(to=to_num, channel=channel, want_ack=want_ack, decoded=data(TEXT, payload, **fields))


def routing(error: int, request_id: int) -> Any:  # noqa: ANN401
    """A ROUTING answer; NONE is spelled out on the wire."""
    body = mesh_pb2.Routing()
    body.error_reason = error
    return data(ROUTING, body.SerializeToString(), request_id=request_id)


def routing_error(decoded: Any) -> int:  # noqa: ANN401
    """The error in a ROUTING answer; BAD_REQUEST for one that cannot be read."""
    try:
        return int(mesh_pb2.Routing.FromString(decoded.payload).error_reason)
    except DecodeError:
        return Error.BAD_REQUEST


def queue_state(free: int, maxlen: int, *, res: int = 0, packet_id: int = 0) -> Any:  # noqa: ANN401
    """A QueueStatus."""
    return mesh_pb2.QueueStatus(res=res, free=free, maxlen=maxlen, mesh_packet_id=packet_id)


def received(frame: Frame, link: Link, decoded: Any, *, clock: int, channel: int, key: bytes) -> Any:  # noqa: ANN401
    """A frame as the client sees it; ``decoded`` None: still closed. ``key`` empty: not opened by PKI."""
    seen = mesh_pb2.MeshPacket(
        to=frame.to_num,
        id=frame.packet_id,
        rx_time=clock,
        rx_snr=link.snr,
        rx_rssi=link.rssi,
        hop_limit=frame.hop_limit,
        hop_start=frame.hop_start,
        want_ack=frame.want_ack,
        via_mqtt=frame.via_mqtt,
        next_hop=frame.next_hop,
        relay_node=frame.relay_node,
        channel=channel,
        transport_mechanism=OVER_LORA,
    )
    setattr(seen, "from", frame.from_num)
    if decoded is not None:
        seen.decoded.CopyFrom(decoded)
        seen.priority = priority_of(decoded)
    if key:
        seen.pki_encrypted = True
        seen.public_key = key
    return seen


def priority_of(decoded: Any, *, asked: int = 0) -> int:  # noqa: ANN401
    """The transmit priority: what the sender asked for, else by kind (28:MeshPacketQueue.cpp:41)."""
    return asked or _BY_PORT.get(decoded.portnum, DEFAULT)
