"""How long a packet of ours takes, from the own node's modem settings (docs/protocol.md §3.7, §4)."""

from __future__ import annotations

import math

from meshai.radio import airtime
from meshai.radio.airtime import Modem
from meshai.radio.link import NodeInfo

FIRMWARE_TRIES = 5
"""Transmissions before the firmware gives up: 3 today, 5 upstream later (protocol.md §3.7): computed with 5."""
GIVE_UP_MARGIN_S = 30.0
UNKNOWN_HOPS = 3


def modem_of(node: NodeInfo) -> Modem:
    """The modem settings the node really uses."""
    return Modem(node.bandwidth_khz, node.spreading_factor, node.coding_rate)


def text_airtime_ms(
    node: NodeInfo, text_bytes: int, *, pki: bool, has_reply: bool = False, is_tapback: bool = False
) -> int:
    """Time on air of one transmission of a text packet, rounded up."""
    frame = airtime.frame_bytes(text_bytes, pki=pki, has_reply=has_reply, is_tapback=is_tapback)
    return math.ceil(airtime.time_on_air_ms(frame, modem_of(node)))


def receipt_timeout_s(node: NodeInfo, airtime_ms: float, hops: int | None, channel_use_percent: float) -> float:
    """After this long without any receipt there will be none: all tries, the way there and the ACK's way back."""
    way = UNKNOWN_HOPS if hops is None else hops
    one_try_ms = airtime.retransmission_ms(airtime_ms, modem_of(node), channel_use_percent)
    return (FIRMWARE_TRIES * one_try_ms + 2 * way * airtime_ms) / 1000 + GIVE_UP_MARGIN_S


def next_part_s(airtime_ms: float, hops: int | None) -> float:
    """After an implicit ACK the packet still travels: 2 x airtime x (hops + 1) (DESIGN §3 Times)."""
    return 2 * airtime_ms / 1000 * ((UNKNOWN_HOPS if hops is None else hops) + 1)
