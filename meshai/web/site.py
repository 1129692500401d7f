"""What the pages have in common: the daemon, a connection of their own, and how a page is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from meshai import identity
from meshai.clock import Clock
from meshai.daemon import Daemon
from meshai.radio.link import LinkState
from meshai.storage import identities, panels
from meshai.storage.database import Reader
from meshai.web.access import Guesses, Sessions
from meshai.web.guard import Visitor
from meshai.web.history import History, Sample
from meshai.web.live import Live
from meshai.web.logtail import LogTail
from meshai.web.render import Pages

log = logging.getLogger(__name__)

RENDERS_AT_ONCE = 2
"""Drawing a page takes the loop's time, which belongs to the radio."""
PAGE = 50
MENU = (
    ("/", "Overview"),
    ("/nodes", "Nodes"),
    ("/conversations", "Conversations"),
    ("/calls", "Model calls"),
    ("/log", "Log"),
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a node as the operator compares it."""

    fingerprint: str
    standing: str
    first_seen: float
    accepted_at: float | None


class Site:
    """One per web server."""

    def __init__(
        self, daemon: Daemon, reader: Reader, sessions: Sessions, tail: LogTail, unwell: Callable[[], str]
    ) -> None:
        self.daemon = daemon
        self.reader = reader
        self.sessions = sessions
        self.guesses = Guesses(daemon.clock)
        self.tail = tail
        self.unwell = unwell
        self.pages = Pages(daemon.clock)
        self.history = History(daemon.clock, self._sample)
        self.live = Live(self._probe, daemon.clock)
        self._renders = asyncio.Semaphore(RENDERS_AT_ONCE)

    @property
    def clock(self) -> Clock:
        """The daemon's clock."""
        return self.daemon.clock

    async def page(self, request: Request, template: str, /, *, live: str = "", **values: Any) -> Response:  # noqa: ANN401 - a template takes anything
        """A page for this visitor; ``live`` names the topics that make it worth asking for again."""
        async with self._renders:
            return self.html(request, 200, template, live=live, **values)

    def html(self, request: Request, status: int, template: str, /, *, live: str = "", **values: Any) -> Response:  # noqa: ANN401 - as above
        """The same at once, for errors."""
        visitor: Visitor | None = request.scope.get("state", {}).get("visitor")
        is_in = visitor is not None and visitor.is_in
        common = {
            "menu": MENU if is_in else (),
            "here": "/" + request.url.path.split("/")[1],
            "live": live if is_in else "",
            "csrf": visitor.csrf if visitor else "",
            "said": self.sessions.said(visitor.session)
            if visitor and is_in and "x-live" not in request.headers
            else None,
            "can_log_out": is_in and self.sessions.needs_login,
            "bot": self.bot_name() if is_in else "MeshAI",
            "link_state": str(self.daemon.link.state) if is_in else "",
            "paused": self.daemon.pause.is_on if is_in else False,
        }
        return HTMLResponse(self.pages.html(template, common | values), status)

    def error(self, request: Request, status: int, sentence: str) -> Response:
        """A page that says what is wrong."""
        return self.html(request, status, "error.html", code=status, sentence=sentence)

    def bot_name(self) -> str:
        """How the own node calls itself."""
        node = self.daemon.link.node
        return (node.long_name or node.id) if node is not None else "MeshAI"

    def problems(self) -> list[str]:
        """What an operator should look at."""
        unwell = self.unwell()
        return [*([f"unwell: {unwell}"] if unwell else []), *self.daemon.problems()]

    async def keys_of(self, node_id: str) -> list[Key]:
        """The keys a node has shown and which one stands for it."""
        rows = await identities.of_node(self.reader, node_id)
        pinned = identity.pinned_admin_key(self.daemon.settings.access.admins, node_id)
        current = identity.current_key(rows, pinned)

        def standing(row: identities.IdentityRow) -> str:
            if row.revoked_at is not None:
                return "revoked"
            return "known" if row.public_key == current else "waiting"

        return [
            Key(identity.fingerprint(row.public_key), standing(row), row.first_seen, row.accepted_at) for row in rows
        ]

    def _sample(self, at: float) -> Sample:
        delivery, air = self.daemon.sender.status(), self.daemon.governor.status()
        return Sample(
            at,
            channel_percent=_figure(air["channel_utilization_percent"]),
            transmit_percent=_figure(air["air_util_tx_percent"]),
            used_percent=_figure(air["used_percent"]) or 0.0,
            waiting=self.daemon.responder.waiting,
            queued=_count(delivery.get("queued")) + _count(delivery.get("in_flight")),
            held=_count(delivery.get("held")),
            is_up=self.daemon.link.state is LinkState.UP,
        )

    async def _probe(self) -> dict[str, object]:
        daemon = self.daemon
        return {
            "data": await panels.data_version(self.reader),
            "state": (daemon.link.state, daemon.pause.is_on, daemon.responder.waiting, len(self.history.samples)),
            "log": self.tail.count,
        }


def number_in(request: Request, name: str, *, of_path: bool = False) -> int:
    """A whole number from the query (0 when absent) or the path; anything else is a page that does not exist."""
    text = str(request.path_params[name]) if of_path else request.query_params.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise HTTPException(404)
    return int(text)


def not_found() -> HTTPException:
    """What was asked for does not exist, or no longer."""
    return HTTPException(404)


def _figure(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
