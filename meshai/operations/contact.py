"""The own node for other processes, and a short look at the DMs that arrive: for ``identity show`` and ``setup``."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from meshai.clock import Clock
from meshai.errors import LinkDownError
from meshai.operations.base import Operation, Report
from meshai.radio.contact import contact_url
from meshai.radio.link import Inbound, LinkEvent, NodeInfo, Peer

LISTEN_S = 15.0
"""Between two calls of a listener; without a new one nobody listens any more."""
MAX_WAIT_S = 5.0
MAX_EVENTS = 100
CODE = re.compile(r"^[0-9]{6}$")


class ContactOperations:
    """``node.show`` and ``contact.listen``."""

    def __init__(self, clock: Clock, node: Callable[[], NodeInfo | None], peer: Callable[[int], Peer | None]) -> None:
        self._clock = clock
        self._node = node
        self._peer = peer
        self._until = float("-inf")
        self._events: list[dict[str, object]] = []
        self._arrived = asyncio.Event()

    def table(self) -> dict[str, Operation]:
        """Name → operation."""
        return {"node.show": self.node_show, "contact.listen": self.listen}

    def take(self, event: LinkEvent) -> bool:
        """Show an event to a listener. True: it was a six-digit code for the listener, no question for the bot."""
        if (
            not isinstance(event, Inbound)
            or not event.is_dm
            or event.is_tapback
            or self._clock.monotonic() > self._until
        ):
            return False
        peer = self._peer(event.from_num)
        key = event.public_key.hex() if event.authenticated and event.public_key else ""
        name = peer.long_name if peer is not None else ""
        self._events = [
            *self._events[-MAX_EVENTS:],
            {"node_id": event.sender_id, "name": name, "text": event.text, "public_key": key},
        ]
        self._arrived.set()
        return CODE.match(event.text.strip().replace(" ", "")) is not None

    async def node_show(self, _args: Mapping[str, Any], _report: Report) -> dict[str, object]:
        """The own node with its public key and contact link; raises LinkDownError before it was ever seen."""
        node = self._node()
        if node is None:
            raise LinkDownError("the daemon has not seen its node yet: meshai status tells why")
        facts = {name: getattr(node, name) for name in NodeInfo.__slots__ if name not in ("public_key", "channels")}
        return {**facts, "public_key": node.public_key.hex() if node.public_key else "", "url": contact_url(node)}

    async def listen(self, args: Mapping[str, Any], _report: Report) -> list[dict[str, object]]:
        """The DMs since the last call, after at most ``wait_s``; the first call begins to listen."""
        now = self._clock.monotonic()
        if now > self._until:
            self._events = []
        self._until = now + LISTEN_S
        wait_s = min(MAX_WAIT_S, max(0.0, float(args.get("wait_s", 1.0))))
        if not self._events:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._arrived.wait()
        events, self._events = self._events, []
        return events
