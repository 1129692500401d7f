"""Closing and opening frames: keys, channels, sizes, and errors when they do not fit (docs/protocol.md §3.2, §6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshtastic.protobuf import mesh_pb2

from meshai.radio.airtime import MAX_FRAME_BYTES
from meshai.radio.virtual.frame import (
    BROADCAST,
    NODEINFO,
    POSITION,
    ROUTING,
    TEXT,
    TRACEROUTE,
    Error,
    Frame,
    Lock,
    Seal,
)

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

DEFAULT_KEY = bytes.fromhex("d4f1bb3a20290759f0bcffabcf4e6901")
"""The key everybody has (firmware Channels.h)."""
NEVER_PKI = frozenset({ROUTING, NODEINFO, TRACEROUTE, POSITION})
"""Ports that go by channel even to one node (26:Router.cpp perhapsEncode)."""
LEGACY_SENT_BEFORE, LEGACY_HEARD_BEFORE = (2, 7, 19), (2, 7, 14)
"""Firmware that still sends, or takes, a text DM without PKI (protocol.md §0)."""


class SealError(Exception):
    """A packet cannot be sent; ``code`` is the Routing.Error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"routing error {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Opened:
    """What a node made of a frame. ``decoded`` None: it stays closed, and ``error`` says what to answer."""

    decoded: Any = None
    channel: int = 0
    key: bytes = b""  # the sender's, if it was opened by PKI
    error: int = Error.NONE
    by_pki: bool = False


def channel_secret(node: VirtualNode, index: int) -> bytes:
    """What the members of a channel share: its name and key. SealError NO_CHANNEL for an unused index."""
    channels = node.settings.channels
    if not 0 <= index < len(channels):
        raise SealError(Error.NO_CHANNEL)
    psk = channels[index].psk or (channels[0].psk if index else b"")
    if len(psk) == 1:
        psk = DEFAULT_KEY[:-1] + bytes([(DEFAULT_KEY[-1] + psk[0] - 1) & 0xFF])
    return (channels[index].name or node.settings.preset).encode() + b"\x00" + psk


def close(node: VirtualNode, packet: Any) -> tuple[Seal, bytes]:  # noqa: ANN401
    """The seal and the Data bytes of a packet to be sent; SealError when that is impossible."""
    decoded = mesh_pb2.Data()
    decoded.CopyFrom(packet.decoded)
    decoded.bitfield = 2 if decoded.want_response else 0
    seal = _choose(node, packet)
    body = bytes(decoded.SerializeToString())
    if Frame(node.num, packet.to, packet.id, seal, body).size > MAX_FRAME_BYTES:
        raise SealError(Error.TOO_LARGE)
    return seal, body


def _choose(node: VirtualNode, packet: Any) -> Seal:  # noqa: ANN401
    port = packet.decoded.portnum
    if packet.to != BROADCAST and port not in NEVER_PKI and not node.settings.licensed:
        key = node.database.key_of(packet.to)
        if key:
            if packet.pki_encrypted and packet.public_key and packet.public_key != key:
                raise SealError(Error.PKI_FAILED)
            return Seal(Lock.PKI, sender_key=node.public_key, receiver_key=key)
        if packet.pki_encrypted or (port == TEXT and node.settings.version >= LEGACY_SENT_BEFORE):
            raise SealError(Error.PKI_SEND_FAIL_PUBLIC_KEY)
    elif packet.pki_encrypted:
        raise SealError(Error.PKI_FAILED)
    return Seal(Lock.CHANNEL, channel=channel_secret(node, packet.channel))


def open_frame(node: VirtualNode, frame: Frame) -> Opened:
    """Try the node's keys and channels on a frame."""
    if frame.seal.lock is Lock.PKI:
        return _open_pki(node, frame)
    for index in range(len(node.settings.channels)):
        if channel_secret(node, index) == frame.seal.channel:
            break
    else:
        return Opened(error=Error.NO_CHANNEL)
    decoded = mesh_pb2.Data.FromString(frame.data)
    if _is_refused_legacy(node, frame, decoded):
        unknown = not node.database.key_of(frame.from_num)
        return Opened(error=Error.PKI_UNKNOWN_PUBKEY if unknown else Error.NO_CHANNEL)
    return Opened(decoded, channel=index)


def _open_pki(node: VirtualNode, frame: Frame) -> Opened:
    if frame.to_num != node.num:
        return Opened(error=Error.NO_CHANNEL, by_pki=True)
    key = node.database.key_of(frame.from_num)
    if not key:
        return Opened(error=Error.PKI_UNKNOWN_PUBKEY, by_pki=True)
    if key != frame.seal.sender_key or frame.seal.receiver_key != node.public_key:
        return Opened(error=Error.NO_CHANNEL, by_pki=True)
    return Opened(mesh_pb2.Data.FromString(frame.data), key=key, by_pki=True)


def _is_refused_legacy(node: VirtualNode, frame: Frame, decoded: Any) -> bool:  # noqa: ANN401
    """A text DM without PKI, to a node that no longer takes them (protocol.md §6)."""
    return (
        frame.to_num == node.num
        and decoded.portnum == TEXT
        and not node.settings.licensed
        and node.settings.version >= LEGACY_HEARD_BEFORE
    )
