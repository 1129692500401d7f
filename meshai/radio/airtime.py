"""Time on air: pure functions of the modem's settings (docs/protocol.md §4, §3.7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

HEADER_BYTES = 16
"""LoRa header of the mesh, in front of the Data protobuf (protocol.md §1)."""
PKI_BYTES = 12
"""What public-key encryption adds: 8 bytes of tag, 4 of nonce (protocol.md §1)."""
MAX_FRAME_BYTES = 255
"""The longest LoRa frame; one byte more is TOO_LARGE (protocol.md §1)."""
PREAMBLE_SYMBOLS = 16
CW_MIN, CW_MAX = 3, 8
PROCESSING_MS = 4500.0


@dataclass(frozen=True, slots=True)
class Modem:
    """Bandwidth in kHz, spreading factor, and the denominator of the coding rate 4/x."""

    bandwidth_khz: float
    spreading_factor: int
    coding_rate: int

    @property
    def symbol_ms(self) -> float:
        """Duration of one LoRa symbol."""
        return float(2**self.spreading_factor / self.bandwidth_khz)

    @property
    def slot_ms(self) -> float:
        """One slot of the contention window: channel sensing plus turnaround (firmware RadioInterface.cpp)."""
        return 2.25 * self.symbol_ms + 7.6


PRESETS: dict[str, Modem] = {
    "SHORT_TURBO": Modem(500.0, 7, 5),
    "SHORT_FAST": Modem(250.0, 7, 5),
    "SHORT_SLOW": Modem(250.0, 8, 5),
    "MEDIUM_TURBO": Modem(500.0, 9, 5),
    "MEDIUM_FAST": Modem(250.0, 9, 5),
    "MEDIUM_SLOW": Modem(250.0, 10, 5),
    "LONG_TURBO": Modem(500.0, 11, 8),
    "LONG_FAST": Modem(250.0, 11, 5),
    "LONG_MODERATE": Modem(125.0, 11, 8),
    "LONG_SLOW": Modem(125.0, 12, 8),
    "VERY_LONG_SLOW": Modem(62.5, 12, 8),
    "LITE_FAST": Modem(125.0, 9, 5),
    "LITE_SLOW": Modem(125.0, 10, 5),
    "NARROW_FAST": Modem(62.5, 7, 6),
    "NARROW_SLOW": Modem(62.5, 8, 6),
}
"""The firmware's modem presets (protocol.md §4)."""


DUTY_CYCLE_PERCENT = {"EU_433": 10.0, "EU_868": 10.0, "EU_866": 2.5, "UA_433": 10.0, "UA_868": 1.0}
"""Share of an hour a node may transmit, where a region limits it (protocol.md §4); elsewhere 100."""


def time_on_air_ms(payload_len: int, preset: str | Modem = "LONG_FAST") -> float:
    """Duration of one transmission of a frame of ``payload_len`` bytes, header included.

    RadioLib's formula with preamble 16, explicit header and CRC (protocol.md §4). KeyError for an unknown preset.
    """
    modem = PRESETS[preset] if isinstance(preset, str) else preset
    low_rate = 2 if modem.symbol_ms >= 16 else 0
    sf = modem.spreading_factor
    coded = max(0, math.ceil((8 * payload_len + 16 - 4 * sf + 28) / (4 * (sf - low_rate))))
    return (PREAMBLE_SYMBOLS + 12.25 + coded * modem.coding_rate) * modem.symbol_ms


def frame_bytes(text_bytes: int, *, pki: bool = True, has_reply: bool = False, is_tapback: bool = False) -> int:
    """Length of the LoRa frame that carries a text of so many UTF-8 bytes (protocol.md §1)."""
    data = text_bytes + (7 if text_bytes >= 128 else 6 if text_bytes else 4)
    data += (5 if has_reply else 0) + (5 if is_tapback else 0)
    return HEADER_BYTES + data + (PKI_BYTES if pki else 0)


def contention_window(channel_use_percent: float) -> int:
    """Exponent of the contention window: 3 on a quiet channel, 8 on a full one."""
    share = min(max(channel_use_percent, 0.0), 100.0) / 100
    return CW_MIN + round((CW_MAX - CW_MIN) * share)


def retransmission_ms(airtime_ms: float, modem: Modem, channel_use_percent: float = 0.0) -> float:
    """How long the firmware waits for an acknowledgement before it transmits again (protocol.md §3.7)."""
    slots = 2 ** contention_window(channel_use_percent) + 2 * CW_MAX + 2 ** ((CW_MAX + CW_MIN) // 2)
    return float(2 * airtime_ms + slots * modem.slot_ms + PROCESSING_MS)
