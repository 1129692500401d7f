"""A node's TCP port, with everything that goes wrong on one (docs/protocol.md §5.3)."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import TYPE_CHECKING

from meshai.radio.virtual.stream import Session

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

log = logging.getLogger(__name__)


class TcpPort:
    """Serves one client at a time; a new one kicks the old (protocol.md §9.8).

    The port number stays the same while it refuses and comes back. Fault switches hold for the connections
    made afterwards: ``silent`` (accepts, never answers), ``hang_after`` (the download stops after so many frames).
    """

    def __init__(self, node: VirtualNode, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self.silent = False
        self.hang_after: int | None = None
        self.connections = 0
        self._node = node
        self._server: asyncio.Server | None = None
        self._client: _Client | None = None
        self._open: set[_Client] = set()
        self._wanted = False
        self._refusing = 0
        self._opening = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._follow(node)

    @property
    def node(self) -> VirtualNode:
        """The node that answers here."""
        return self._node

    @property
    def connected(self) -> bool:
        """Whether a client is there."""
        return self._client is not None

    async def start(self) -> None:
        """Listen; ``port`` is the real one afterwards."""
        self._wanted = True
        await self._listen()

    async def stop(self) -> None:
        """Stop listening and drop the client."""
        self._wanted = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        server = self._server
        self._refuse()
        for client in list(self._open):
            client.abandon()  # one that does not read would keep its connection open for ever
        if server is not None:
            await server.wait_closed()

    def serving(self) -> bool:
        """Whether clients may come: started, the node runs, and no refusal is asked for."""
        return self._wanted and not self._refusing and self._node.on

    async def _listen(self) -> None:
        if self._server is not None or self._opening or not self.serving():
            return
        self._opening = True
        try:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: _Client(self), self.host, self.port)
        finally:
            self._opening = False
        if not self.serving():  # it went down meanwhile
            server.close()
            return
        self._server = server
        self.port = server.sockets[0].getsockname()[1]

    def _refuse(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self.drop()

    # -- faults -------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """EOF for the client."""
        if self._client is not None:
            self._client.shut()

    def reset(self) -> None:
        """RST for the client."""
        if self._client is not None:
            self._client.break_off()

    def stall(self, size: int = 40) -> None:
        """Announce a frame of ``size`` bytes, send half of it and say nothing more on this connection."""
        if self._client is not None:
            self._client.stall(size)

    def mute(self) -> None:
        """Say nothing more on this connection, which stays open: a hung firmware. Packets keep waiting."""
        if self._client is not None:
            self._client.session.answers = False

    def lose(self) -> None:
        """Lost WiFi: the node goes on, but what it tells this client is gone (protocol.md §2.5)."""
        if self._client is not None:
            self._client.session.loses = True

    def refuse(self, seconds: float) -> None:
        """Drop the client and refuse connections for so many protocol seconds."""
        self._refusing += 1
        self._refuse()

        def come_back() -> None:
            self._refusing -= 1
            self._follow_state()

        self._node.timeline.after(seconds, come_back)

    def swap(self, other: VirtualNode) -> None:
        """Another node answers on this port from now on: two boards changed places."""
        self.drop()
        self._node = other
        self._follow(other)
        self._follow_state()

    def _follow(self, node: VirtualNode) -> None:
        def power(_on: bool) -> None:
            if self._node is node:
                self._follow_state()

        node.on_power(power)

    def _follow_state(self) -> None:
        if not self.serving():
            self._refuse()
        elif self._server is None:
            task = asyncio.get_running_loop().create_task(self._come_back())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _come_back(self) -> None:
        try:
            await self._listen()
        except OSError as error:
            log.warning("the virtual node cannot listen on port %d again: %s", self.port, error)

    def joined(self, client: _Client) -> None:
        """A client connected; whoever was there is thrown out."""
        self.drop()
        self.connections += 1
        self._client = client
        self._open.add(client)

    def left(self, client: _Client) -> None:
        """A client is out, though its connection may still be closing."""
        if self._client is client:
            self._client = None

    def closed(self, client: _Client) -> None:
        """A connection has ended."""
        self._open.discard(client)


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: TcpPort) -> None:
        self._port = port
        self.session: Session
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.session = Session(self._port.node, self._write, self.shut)
        self._port.joined(self)
        if not self._port.serving():  # accepted in the moment the node went down
            self.shut()
        self.session.answers = not self._port.silent
        self.session.hang_after = self._port.hang_after

    def data_received(self, data: bytes) -> None:
        self.session.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        log.debug("client of %s is gone (%s)", self._port.node, exc or "closed")
        self.session.end()
        self._port.left(self)
        self._port.closed(self)

    def shut(self) -> None:
        """EOF."""
        self.session.end()
        self._port.left(self)
        self._transport.close()

    def break_off(self) -> None:
        """RST."""
        self.session.end()
        self._port.left(self)
        sock: socket.socket = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def abandon(self) -> None:
        """Close at once, whatever is still unsent."""
        self._transport.abort()

    def stall(self, size: int) -> None:
        """Half a frame, then silence."""
        self._write(b"\x94\xc3" + size.to_bytes(2, "big") + b"\x1a" * (size // 2))
        self.session.answers = False

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
