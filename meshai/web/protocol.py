"""uvicorn's HTTP/1.1 protocol with a bound on connections and on how long one may say nothing.

uvicorn itself waits for ever for the first header of a connection.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST_CONNECTIONS = 64
"""Browsers open six each; beyond this the one that has been silent longest gives way."""
REQUEST_HEAD_S = 10.0
"""A whole request head has to be here by then, counted from the connection's start or the last response's end."""


class PageProtocol(H11Protocol):
    """One connection."""

    _silent_since: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room if need be, and wait for a request only so long."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS and not self._make_room():
            transport.abort()
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A complete request head ends the wait; a byte now and then does not."""
        super().data_received(data)
        if not self.is_waiting:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request of this connection."""
        super().on_response_complete()
        if self.is_waiting and not self.transport.is_closing():
            self._expect_request()

    @property
    def is_waiting(self) -> bool:
        """No request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn annotates it as never None
        return cycle is None or cycle.response_complete

    def give_way(self) -> None:
        """Close without a word."""
        self._stop_waiting()
        if self.conn.our_state is not h11.ERROR:
            self.transport.abort()

    def _expect_request(self) -> None:
        self._stop_waiting()
        self._silent_since = self.loop.call_later(REQUEST_HEAD_S, self.give_way)

    def _stop_waiting(self) -> None:
        if self._silent_since is not None:
            self._silent_since.cancel()
            self._silent_since = None

    def _make_room(self) -> bool:
        silent = [
            other
            for other in self.connections
            if isinstance(other, PageProtocol)
            and other is not self
            and other.is_waiting
            and other._silent_since is not None  # noqa: SLF001 - same class
        ]
        if not silent:
            return False
        min(silent, key=lambda other: other._silent_since.when() if other._silent_since else 0.0).give_way()  # noqa: SLF001
        return True
