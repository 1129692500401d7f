"""Finding the node and reading it over a connection of its own, which ends at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshai.clock import Clock
from meshai.config.model import Connection
from meshai.errors import LinkDownError
from meshai.radio import discover
from meshai.radio.link import Inbound, LinkChange, LinkEvent, LinkState, NodeInfo, RadioLink
from meshai.radio.registry import open_link
from meshai.radio.timings import Timings

READ_S = 60.0
ATTEMPTS = 2  # many boards restart when their serial port is opened
TIMINGS = Timings(linger_s=0.0, backoff_min_s=1.5)


@dataclass(frozen=True, slots=True)
class UsbNode:
    """A serial port that may have a node."""

    port: str
    label: str


def on_usb(
    *, by_id: Path = discover.BY_ID, ports: Callable[[], Iterable[discover.Port]] | None = None
) -> list[UsbNode]:
    """The serial ports of known boards first, then the others on USB; by their lasting names."""
    found = sorted(
        (ports or discover.list_ports)(), key=lambda port: (port.vendor not in discover.VENDORS, port.device)
    )
    return [
        UsbNode(
            discover.stable_name(port.device, by_id),
            discover.VENDORS.get(port.vendor) or _shown(port.description) or "unknown maker",
        )
        for port in found
        if port.vendor is not None
    ]


def connection_for(*, serial_port: str = "", tcp: tuple[str, int] | None = None) -> Connection:
    """The settings for one way to the node."""
    if tcp is not None:
        return Connection(type="tcp", tcp_host=tcp[0], tcp_port=tcp[1])
    return Connection(type="serial", serial_port=serial_port or "auto")


@asynccontextmanager
async def connected(
    connection: Connection, clock: Clock, timings: Timings | None = None
) -> AsyncIterator[tuple[RadioLink, asyncio.Queue[LinkEvent]]]:
    """A link that is up, and what it reports; closed afterwards. Raises LinkDownError with the reason."""
    events: asyncio.Queue[LinkEvent] = asyncio.Queue()
    link = open_link(connection, clock, timings or TIMINGS)
    await link.start(events.put_nowait)
    try:
        early = await _until_up(events)
        for event in early:
            events.put_nowait(event)
        yield link, events
    finally:
        await link.stop()


async def read(connection: Connection, clock: Clock, timings: Timings | None = None) -> NodeInfo:
    """The node's name, region, preset, role, key. Raises LinkDownError with the reason."""
    async with connected(connection, clock, timings) as (link, _):
        if link.node is None:
            raise LinkDownError("the node says nothing about itself")
        return link.node


async def _until_up(events: asyncio.Queue[LinkEvent]) -> list[Inbound]:
    failed = 0
    early: list[Inbound] = []
    try:
        async with asyncio.timeout(READ_S):
            while True:
                event = await events.get()
                if isinstance(event, Inbound):
                    early.append(event)
                if not isinstance(event, LinkChange):
                    continue
                if event.state is LinkState.UP:
                    return early
                failed += event.state is LinkState.DOWN
                if event.state is LinkState.STUCK or failed == ATTEMPTS:
                    raise LinkDownError(event.reason)
    except TimeoutError:
        raise LinkDownError(f"the node did not answer within {READ_S:g} s") from None


def from_daemon(facts: Mapping[str, Any]) -> NodeInfo:
    """The node as a running daemon tells it (``node.show``)."""
    key = str(facts.get("public_key") or "")
    known = {
        name: facts[name] for name in NodeInfo.__slots__ if name in facts and name not in ("public_key", "channels")
    }
    return replace(NodeInfo(**known), public_key=bytes.fromhex(key) or None)


def describe(node: NodeInfo) -> list[tuple[str, str]]:
    """What the operator wants to see of it."""
    name = f"{node.long_name} ({node.short_name})" if node.short_name else node.long_name
    return [
        ("node", f"{node.id} {name}".rstrip()),
        ("board", f"{node.hardware or 'unknown'}, firmware {node.firmware or 'unknown'}"),
        ("radio", f"region {node.region}, preset {node.preset}, {node.hop_limit} hops"),
        ("role", node.role),
    ]


def _shown(description: str) -> str:
    """What a USB device calls itself: foreign text."""
    return "".join(char for char in description if char.isprintable())[:60]
