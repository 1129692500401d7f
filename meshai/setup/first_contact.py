"""The first DM: shown as it arrives, and with the six-digit code in it, the operator's own node becomes admin."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from meshai.clock import Clock
from meshai.config.model import Connection
from meshai.errors import LinkDownError
from meshai.ops import control
from meshai.radio.link import Decoding, Inbound, LinkChange, LinkEvent, LinkState, Peer
from meshai.radio.timings import Timings
from meshai.setup.code import OneTimeCode, Verdict
from meshai.setup.node import connected

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A direct message. ``public_key`` None: the node did not authenticate it."""

    node_id: str
    name: str
    text: str
    public_key: bytes | None

    @property
    def base64_key(self) -> str:
        """As ``access.admins`` wants it."""
        return base64.b64encode(self.public_key or b"").decode("ascii")


class Source(Protocol):
    """Where DMs come from."""

    async def next(self) -> Arrived | None:
        """The next one; None after a second without any. Raises LinkDownError, MissingError when it ended."""
        ...


async def wait(
    source: Source, code: OneTimeCode, show: Callable[[Arrived, Verdict], None], *, until_code: bool
) -> Arrived | None:
    """Show what arrives until the code came (then the message), or its time is up.

    ``until_code`` False: the first DM is all that is waited for, and it makes nobody admin.
    """
    while code.left_s:
        arrived = await source.next()
        if arrived is None:
            continue
        verdict = code.judge(arrived.text, authenticated=arrived.public_key is not None)
        show(arrived, verdict)
        if verdict is Verdict.RIGHT or not until_code:
            return arrived if verdict is Verdict.RIGHT and until_code else None
    return None


@asynccontextmanager
async def over_link(connection: Connection, clock: Clock, timings: Timings | None = None) -> AsyncIterator[Source]:
    """The node on a connection of our own. Raises LinkDownError."""
    async with connected(connection, clock, timings) as (link, events):
        yield _Link(events, link.peer)


def over_daemon(socket: Path) -> Source:
    """The node of a running daemon."""
    return _Daemon(socket)


class _Link:
    def __init__(self, events: asyncio.Queue[LinkEvent], peer: Callable[[int], Peer | None]) -> None:
        self._events = events
        self._peer = peer

    async def next(self) -> Arrived | None:
        try:
            async with asyncio.timeout(POLL_S):
                while True:
                    event = await self._events.get()
                    if isinstance(event, LinkChange) and event.state is not LinkState.UP:
                        raise LinkDownError(event.reason or "the link was lost")
                    if isinstance(event, Inbound) and event.is_dm and not event.is_tapback:
                        return self._arrived(event)
        except TimeoutError:
            return None

    def _arrived(self, event: Inbound) -> Arrived:
        peer = self._peer(event.from_num)
        key = event.public_key if event.authenticated else None
        text = event.text if event.decoding is Decoding.TEXT else "(cannot be read)"
        return Arrived(event.sender_id, peer.long_name if peer is not None else "", text, key)


class _Daemon:
    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._events: list[dict[str, Any]] = []

    async def next(self) -> Arrived | None:
        if not self._events:
            # Short calls: a blocked thread would hold up Ctrl-C.
            self._events = await asyncio.to_thread(
                control.call, self._socket, "contact.listen", {"wait_s": POLL_S}, timeout_s=10.0
            )
        if not self._events:
            return None
        event = self._events.pop(0)
        key = bytes.fromhex(event["public_key"]) or None
        return Arrived(event["node_id"], event["name"], event["text"], key)
