"""Which radios there are. A new kind is one module and one line in ``KINDS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from meshai.clock import Clock
from meshai.config.model import Connection
from meshai.radio import discover, library
from meshai.radio.link import RadioLink
from meshai.radio.timings import Timings

if TYPE_CHECKING:
    from meshai.radio.interfaces import GuardedInterface, Listener


def open_link(settings: Connection, clock: Clock, timings: Timings | None = None) -> RadioLink:
    """The link of the configuration's ``connection`` section, not started yet.

    Raises UnsupportedLibraryError when the meshtastic library is not one we know.
    """
    library.check()
    return KINDS[settings.type](settings, clock, timings or Timings())


def _serial(settings: Connection, clock: Clock, timings: Timings) -> RadioLink:
    from meshai.radio.device import DeviceLink

    def build(listener: Listener, timings: Timings) -> GuardedInterface:
        from meshai.radio.interfaces import SerialNode

        return SerialNode(discover.find_port(settings.serial_port), listener, timings)

    return DeviceLink(build, clock, device=f"serial port {settings.serial_port}", timings=timings)


def _tcp(settings: Connection, clock: Clock, timings: Timings) -> RadioLink:
    from meshai.radio.device import DeviceLink

    def build(listener: Listener, timings: Timings) -> GuardedInterface:
        from meshai.radio.interfaces import TcpNode

        return TcpNode(settings.tcp_host, settings.tcp_port, listener, timings)

    # A node on the network keeps running when its client leaves: nothing to wait for.
    device = f"{settings.tcp_host}:{settings.tcp_port}"
    return DeviceLink(build, clock, device=device, timings=replace(timings, linger_s=0.0))


def _ble(settings: Connection, clock: Clock, timings: Timings) -> RadioLink:
    from meshai.radio.device import DeviceLink

    def build(listener: Listener, timings: Timings) -> GuardedInterface:
        from meshai.radio.ble import BleNode

        return BleNode(settings.ble_address, listener, timings)

    return DeviceLink(build, clock, device=f"Bluetooth node {settings.ble_address}", timings=timings)


KINDS: dict[str, Callable[[Connection, Clock, Timings], RadioLink]] = {
    "serial": _serial,
    "tcp": _tcp,
    "ble": _ble,
}
