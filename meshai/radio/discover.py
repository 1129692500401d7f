"""Which serial port the node is on. ``auto`` never guesses between several: a wrong guess talks to somebody's GPS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from meshai.errors import LinkDownError

BY_ID = Path("/dev/serial/by-id")
"""udev's stable names: they survive replugging, ttyACM0 does not (protocol.md §8)."""
VENDORS: dict[int, str] = {
    0x239A: "nRF52 (Adafruit, RAK)",
    0x303A: "ESP32-S3",
    0x10C4: "CP210x",
    0x1A86: "CH34x",
    0x2886: "Seeed",
}
"""USB vendors of Meshtastic boards (protocol.md §8)."""


@dataclass(frozen=True, slots=True)
class Port:
    """A serial port of this computer; ``vendor`` is None for ports that are not on USB."""

    device: str
    vendor: int | None = None
    description: str = ""


def find_port(setting: str, *, by_id: Path = BY_ID, ports: Callable[[], Iterable[Port]] | None = None) -> str:
    """The path to open for ``connection.serial_port``; raises LinkDownError that says what to do.

    A path is taken as it is, there or not: its by-id name vanishes while the node reboots and comes back.
    """
    if setting != "auto":
        return setting
    found = sorted((ports or list_ports)(), key=lambda port: port.device)
    nodes = [port for port in found if port.vendor in VENDORS]
    if not nodes:
        others = ", ".join(stable_name(port.device, by_id) for port in found)
        hint = f"; other ports are there: {others}; set connection.serial_port if one is it" if others else ""
        raise LinkDownError(f"no Meshtastic node found on USB{hint}")
    if len(nodes) > 1:
        listed = ", ".join(f"{stable_name(port.device, by_id)} ({VENDORS[port.vendor or 0]})" for port in nodes)
        raise LinkDownError(f"several nodes may be on USB, set connection.serial_port to one of: {listed}")
    return stable_name(nodes[0].device, by_id)


def list_ports() -> list[Port]:
    """The serial ports pyserial sees."""
    from serial.tools import list_ports as pyserial

    return [Port(port.device, port.vid, port.description or "") for port in pyserial.comports()]


def stable_name(device: str, by_id: Path = BY_ID) -> str:
    """The by-id name of a device, the device itself when it has none (no udev, or two boards share one name)."""
    target = Path(device).resolve()
    try:
        links = sorted(by_id.iterdir())
    except OSError:
        return device
    return next((str(link) for link in links if link.resolve() == target), device)
