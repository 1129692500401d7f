"""The web server inside the daemon's loop. Nothing it does may hold up the radio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Iterator

import uvicorn

from meshai.config.model import Web
from meshai.daemon import Daemon
from meshai.errors import StorageError
from meshai.storage.database import Reader
from meshai.web.access import Hosts, Sessions
from meshai.web.app import build
from meshai.web.logtail import LogTail
from meshai.web.protocol import PageProtocol
from meshai.web.site import Site

log = logging.getLogger(__name__)

STOP_S = 2
"""Responses in progress have this long at the end."""
MOST_HEAD_BYTES = 16 * 1024


class WebServer:
    """``await start()``; a port that is taken costs the page, not the daemon."""

    def __init__(
        self, daemon: Daemon, web: Web, *, secrets: Iterable[str] = (), unwell: Callable[[], str] = lambda: ""
    ) -> None:
        """``secrets`` never appear in the log's tail; ``unwell`` says why the daemon is."""
        self._daemon = daemon
        self._web = web
        self._unwell = unwell
        self.tail = LogTail(secrets)
        self.site: Site | None = None
        self.port = 0
        self._reader: Reader | None = None
        self._server: _Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> bool:
        """Serve from now on; False when the address cannot be used, which is said in the log."""
        try:
            listener = await asyncio.to_thread(_listen, self._web.host, self._web.port)
        except OSError as error:
            log.error("no page: %s port %d: %s", self._web.host, self._web.port, error.strerror or error)  # noqa: TRY400 - said in full
            return False
        try:
            self._reader = await Reader.open(self._daemon.db.path)
        except StorageError as error:
            listener.close()
            log.error("no page: %s", error)  # noqa: TRY400 - said in full
            return False
        self.port = int(listener.getsockname()[1])
        logging.getLogger().addHandler(self.tail)
        token = self._web.token.get_secret_value()
        sessions = Sessions(token, self._daemon.clock, cookie=f"meshai-{self.port}")
        self.site = Site(self._daemon, self._reader, sessions, self.tail, self._unwell)
        self._server = _Server(_config(build(self.site, Hosts(self._web.host))))
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[listener]), name="page"),
            asyncio.create_task(self.site.history.run(), name="page history"),
            asyncio.create_task(self.site.live.run(), name="page changes"),
        ]
        host = f"[{self._web.host}]" if ":" in self._web.host else self._web.host
        log.info("the page is at http://%s:%d%s", host, self.port, "" if token else " (no token: this computer only)")
        return True

    async def stop(self) -> None:
        """End every stream, finish what is being answered, close."""
        logging.getLogger().removeHandler(self.tail)
        if self._server is None or self.site is None or self._reader is None:
            return
        await self.site.live.close()
        self._server.end()
        serving, *others = self._tasks
        for task in others:
            task.cancel()
        await asyncio.wait([serving], timeout=2 * STOP_S + 1)
        serving.cancel()
        await asyncio.gather(serving, *others, return_exceptions=True)
        await self._reader.close()
        self._server = None


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, the daemon's are in charge, and without waking up ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Stop serving; ``serve`` returns soon after."""
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn's own loop is there for a Date header and for limits that are not used here."""
        await self.on_tick(0)
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is silent, let what is being answered finish, within ``STOP_S``."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if tasks := list(self.server_state.tasks):
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=PageProtocol,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a forged X-Forwarded-For must not be an address of its own for guessing tokens
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
    )


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
        listener.setblocking(False)
    except BaseException:  # the socket must not leak
        listener.close()
        raise
    return listener
