"""What travels through the air: a frame, and the seal that says who can open it. No real cryptography."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from meshai.radio.airtime import HEADER_BYTES, PKI_BYTES

BROADCAST = 0xFFFFFFFF
TEXT, ROUTING, ADMIN, NODEINFO, TELEMETRY = 1, 5, 6, 4, 67
POSITION, WAYPOINT, ALERT, TRACEROUTE = 3, 8, 11, 70
"""Port numbers (portnums.proto)."""
BACKGROUND, DEFAULT, RELIABLE, RESPONSE, HIGH, ACK = 10, 64, 70, 80, 100, 120
"""Priorities of the transmit queue (mesh.proto MeshPacket.Priority)."""


HOP_MAX = 7
"""The header has three bits for hops (firmware MeshTypes.h)."""


class Error:
    """Routing.Error values a node answers with (protocol.md §3.2)."""

    NONE, MAX_RETRANSMIT, NO_CHANNEL, TOO_LARGE, NO_RESPONSE = 0, 5, 6, 7, 8
    NO_INTERFACE, DUTY_CYCLE_LIMIT, BAD_REQUEST, NOT_AUTHORIZED = 4, 9, 32, 33
    PKI_FAILED, PKI_UNKNOWN_PUBKEY, RATE_LIMIT_EXCEEDED, PKI_SEND_FAIL_PUBLIC_KEY = 34, 35, 38, 39


class Lock(Enum):
    """How a frame is closed."""

    PKI = "pki"  # between two key pairs
    CHANNEL = "channel"  # by everybody who has the channel's name and key


@dataclass(frozen=True, slots=True)
class Seal:
    """Who can open a frame: the owner of both keys' halves, or of the channel's secret."""

    lock: Lock
    channel: bytes = b""
    sender_key: bytes = b""
    receiver_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Frame:
    """One LoRa frame: the readable header, the seal, and the Data protobuf inside."""

    from_num: int
    to_num: int
    packet_id: int
    seal: Seal
    data: bytes
    hop_limit: int = 3
    hop_start: int = 3
    want_ack: bool = False
    via_mqtt: bool = False
    next_hop: int = 0  # last byte of the node that shall relay it, 0: anybody
    relay_node: int = 0  # last byte of the node that transmitted it

    @property
    def size(self) -> int:
        """Bytes on the air."""
        return HEADER_BYTES + len(self.data) + (PKI_BYTES if self.seal.lock is Lock.PKI else 0)

    @property
    def key(self) -> tuple[int, int]:
        """What the duplicate filter goes by."""
        return self.from_num, self.packet_id

    @property
    def is_direct(self) -> bool:
        """Not relayed yet: heard from its origin."""
        return self.hop_start == self.hop_limit


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes: probability of loss, extra delay, and how it is heard."""

    loss: float = 0.0
    delay_s: float = 0.0
    snr: float = 6.0
    rssi: int = -80


def last_byte(num: int) -> int:
    """A node's short mark in ``next_hop`` and ``relay_node``; never 0 (firmware NodeDB.h)."""
    return num & 0xFF or 0xFF
