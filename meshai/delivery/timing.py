"""How long things take on the air: pure functions of the node's modem settings (docs/protocol.md §3.7, §4)."""

from __future__ import annotations

import math

from meshai.radio.link import NodeInfo

FIRMWARE_TRIES = 5
"""Transmissions before the firmware gives up: 3 today, 5 upstream later (protocol.md §3.7): computed with 5."""
PROCESSING_MS = 4500.0
GIVE_UP_MARGIN_S = 30.0
HEADER_BYTES, PKI_BYTES = 16, 12
UNKNOWN_HOPS = 3


def symbol_ms(node: NodeInfo) -> float:
    """Duration of one LoRa symbol."""
    return float(2**node.spreading_factor / node.bandwidth_khz)


def text_airtime_ms(
    node: NodeInfo, text_bytes: int, *, pki: bool, has_reply: bool = False, is_tapback: bool = False
) -> int:
    """Time on air of one transmission of a text packet, rounded up."""
    data = text_bytes + (7 if text_bytes >= 128 else 6) + (5 if has_reply else 0) + (5 if is_tapback else 0)
    return frame_airtime_ms(node, HEADER_BYTES + data + (PKI_BYTES if pki else 0))


def frame_airtime_ms(node: NodeInfo, frame_bytes: int) -> int:
    """Time on air of a LoRa frame, header included (protocol.md §4)."""
    symbol = symbol_ms(node)
    low_rate = 2 if symbol >= 16 else 0
    sf = node.spreading_factor
    coded = max(0, math.ceil((8 * frame_bytes + 16 - 4 * sf + 28) / (4 * (sf - low_rate))))
    return math.ceil((28.25 + coded * node.coding_rate) * symbol)


def contention_window(channel_use_percent: float) -> int:
    """The firmware's contention window exponent, 3 to 8 with the channel's use."""
    return 3 + round(5 * min(max(channel_use_percent, 0.0), 100.0) / 100)


def retransmission_s(node: NodeInfo, airtime_ms: float, channel_use_percent: float) -> float:
    """How long the firmware waits for an ACK before it transmits again (protocol.md §3.7)."""
    slot = 2.25 * symbol_ms(node) + 7.6
    slots = float(2 ** contention_window(channel_use_percent) + 48)
    return (2 * airtime_ms + slots * slot + PROCESSING_MS) / 1000


def receipt_timeout_s(node: NodeInfo, airtime_ms: float, hops: int | None, channel_use_percent: float) -> float:
    """After this long without any receipt there will be none: all tries, the way there and the ACK's way back."""
    way = UNKNOWN_HOPS if hops is None else hops
    tries = FIRMWARE_TRIES * retransmission_s(node, airtime_ms, channel_use_percent)
    return tries + GIVE_UP_MARGIN_S + 2 * way * airtime_ms / 1000


def next_part_s(airtime_ms: float, hops: int | None) -> float:
    """After an implicit ACK the packet still travels: 2 x airtime x (hops + 1) (DESIGN §3 Times)."""
    return 2 * airtime_ms / 1000 * ((UNKNOWN_HOPS if hops is None else hops) + 1)
