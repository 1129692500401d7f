"""A very small HTTP/1.1 server on asyncio, just enough to play an OpenAI-compatible server on loopback.

Owns bytes and connections; ``meshai.llm.scripted`` owns what is said. One request at a time per connection, keep-alive,
request bodies by Content-Length. A client that goes away is noticed at once (``Connection.gone``), so that tests can
see cancellations.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
RST = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST instead of FIN


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it came; header names in lower case. Headers carry keys, so they stay out of ``repr``."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class ClientGoneError(Exception):
    """The client closed the connection while it was being answered."""


class Connection(asyncio.Protocol):
    """One client. ``answer`` is called for each request in turn and writes through this object."""

    def __init__(self, answer: Callable[[HttpRequest, Connection], Awaitable[None]]) -> None:
        self.gone = asyncio.Event()
        self._answer = answer
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """Collect bytes of a request."""
        self._buffer += data
        self._more.set()

    def eof_received(self) -> bool:
        """The client sends no more: for our purposes it is gone."""
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The connection ended."""
        self._leave()

    def respond(self, status: int, body: bytes, *, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer."""
        self.write(_head(status, content_type, headers, f"Content-Length: {len(body)}") + body)

    def respond_json(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer in JSON; lone surrogates travel as escapes."""
        self.respond(status, json.dumps(body).encode(), content_type="application/json", headers=headers)

    def begin_chunks(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """The head of a chunked answer."""
        self.write(_head(status, content_type, headers, "Transfer-Encoding: chunked"))

    def chunk(self, data: bytes) -> None:
        """One chunk; empty data ends the answer."""
        self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def write(self, data: bytes) -> None:
        """Raw bytes. Raises ClientGoneError."""
        if self.gone.is_set() or self._transport is None:
            raise ClientGoneError
        self._transport.write(data)

    def drop(self, *, reset: bool) -> None:
        """Break the connection off: ``reset`` by RST, otherwise by a plain end in the middle of the answer."""
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        if reset and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
            self._transport.abort()
        else:
            self._transport.close()
        self._leave()

    async def unless_gone(self, work: Awaitable[object]) -> None:
        """Wait for ``work``; raises ClientGoneError as soon as the client leaves."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, leaving):
                if not task.done():
                    task.cancel()
        if not working.done() or working.cancelled():
            raise ClientGoneError
        working.result()

    def _leave(self) -> None:
        self.gone.set()
        self._more.set()

    async def _serve(self) -> None:
        try:
            while (request := await self._request()) is not None:
                await self._answer(request, self)
        except ClientGoneError:
            pass
        except ValueError as error:
            log.warning("scripted server: bad request: %s", error)
        finally:
            if self._transport is not None:
                self._transport.close()

    async def _request(self) -> HttpRequest | None:
        head = await self._until(lambda: self._buffer.find(b"\r\n\r\n") + 1)
        if not head:
            return None
        end = self._buffer.find(b"\r\n\r\n")
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        start = end + 4
        length = int(headers.get("content-length", "0"))
        if not await self._until(lambda: len(self._buffer) >= start + length):
            return None
        body = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        return HttpRequest(method, path, headers, body)

    async def _until(self, ready: Callable[[], object]) -> bool:
        while not ready():
            if self.gone.is_set():
                return False
            self._more.clear()
            await self._more.wait()
        return True


def _head(status: int, content_type: str, headers: Mapping[str, str] | None, length: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", f"Content-Type: {content_type}", length]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
