"""What an operator sets on a virtual node."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshai.radio.airtime import PRESETS, Modem

DEFAULT_PSK = b"\x01"
"""One byte 1 stands for the key everybody has (firmware Channels.h)."""
FIRMWARE = "2.7.26.54e0d8d"


@dataclass(slots=True)
class ChannelSettings:
    """One of a node's eight channels; the first is the primary one."""

    name: str = ""
    psk: bytes = DEFAULT_PSK


@dataclass(slots=True)
class NodeSettings:
    """What an operator would set on a node."""

    long_name: str = "Node"
    short_name: str = "NODE"
    role: str = "CLIENT"
    region: str = "US"
    preset: str = "LONG_FAST"
    hop_limit: int = 3
    channels: list[ChannelSettings] = field(default_factory=lambda: [ChannelSettings()])
    firmware: str = FIRMWARE
    licensed: bool = False  # ham mode: no encryption between persons
    override_duty_cycle: bool = False
    tx_enabled: bool = True
    to_phone: int = 32  # places in the queue for an absent client: 8, 16 or 32 (protocol.md §2.5)
    database: int = 100  # places in the node database

    @property
    def modem(self) -> Modem:
        """The modem the preset stands for."""
        return PRESETS[self.preset]

    @property
    def version(self) -> tuple[int, ...]:
        """The firmware's first three numbers."""
        return tuple(int(part) for part in self.firmware.split(".")[:3])
