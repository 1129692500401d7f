"""A real node over serial, TCP or BLE. The only module that crosses from the library's threads into asyncio.

A supervisor task makes one connection after the other, for ever. Within a connection everything the library
does may block, vanish or lie; each call has a deadline, and a connection that breaks one is thrown away whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from meshai.clock import Clock
from meshai.errors import LinkDownError, NotOnAirError, RadioError
from meshai.radio import nodeinfo
from meshai.radio.explain import explain
from meshai.radio.link import (
    EventSink,
    LinkChange,
    LinkEvent,
    LinkState,
    NodeInfo,
    Peer,
    Receipt,
    SendRequest,
    Telemetry,
)
from meshai.radio.packet_ids import PacketIds
from meshai.radio.session import Build, Established, Heardable, Lost, Session, payload_of
from meshai.radio.timings import Timings
from meshai.radio.trouble import Complaints, Trouble

log = logging.getLogger(__name__)

HEARTBEAT_SINCE = (2, 7, 4)
"""Firmware that answers a heartbeat (protocol.md §5.3)."""
PLAUSIBLE_TIME = 1_735_689_600
"""2025-01-01: a Pi without a battery clock believes in an earlier time until the network tells it better."""
T = TypeVar("T")


class DeviceLink:
    """See ``RadioLink``. ``build`` makes the interface on the sender thread, so it may block and raise."""

    def __init__(self, build: Build, clock: Clock, *, device: str, timings: Timings | None = None) -> None:
        self._build = build
        self._clock = clock
        self._device = device
        self._timings = timings or Timings()
        self._sink: EventSink = _nobody
        self._state = LinkState.DOWN
        self._since = clock.now()
        self._reason = ""
        self._node: NodeInfo | None = None
        self._nodes: object = None
        self._session: Session | None = None
        self._lost: asyncio.Future[str] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = False
        self._send_gate = asyncio.Lock()
        self._admin_gate = asyncio.Lock()
        self._admin_at = float("-inf")
        self._last_sent: tuple[int, float] | None = None
        self._last_confirmed = asyncio.Event()
        self._packet_ids = PacketIds()
        self._orphans: list[Session] = []
        self._clock_set: tuple[float, float] | None = None
        self._mute_heartbeat = False
        self._next_try_at = 0.0
        self._promised_by = float("inf")
        self._trouble = Trouble(self._timings)
        self._complaints = Complaints(log, clock, self._timings.log_again_s)

    @property
    def state(self) -> LinkState:
        """Where the link stands now."""
        return self._state

    @property
    def node(self) -> NodeInfo | None:
        """The own node; the last known one while the link is down."""
        return self._node

    async def start(self, sink: EventSink) -> None:
        """Begin connecting in the background; a missing node is no error."""
        self._sink = sink
        self._stopping = False
        self._supervisor = asyncio.create_task(self._supervise(), name="radio link")
        self._supervisor.add_done_callback(_report_crash)

    async def stop(self) -> None:
        """Let the last packet leave, close, end as STOPPED; bounded by ``call_s + linger_s + close_s``."""
        self._stopping = True
        await self._linger()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})
            self._supervisor = None
        if self._session is not None:
            await self._discard(self._session)
        self._promised_by = float("inf")
        self._change(LinkState.STOPPED, "stopped")

    def new_packet_id(self) -> int:
        """A packet id in the library's range; works while the link is down."""
        return self._packet_ids.draw()

    async def send(self, request: SendRequest) -> None:
        """Hand one packet to the node; returns when the library has written it.

        Raises LinkDownError when there is no node, or it was lost before the write was certain: repeating the same
        id later is safe (DESIGN §3 "After a crash"). Raises NotOnAirError for a full queue or an impossible text.
        """
        payload = payload_of(request)
        async with self._send_gate:
            session = self._up()
            await self._call(session, lambda: session.transmit(request, payload))
            self._last_sent = (request.packet_id, self._clock.monotonic())
            self._last_confirmed.clear()

    async def set_favourite(self, num: int) -> None:
        """Keep a node in the radio's database (protocol.md §6); raises LinkDownError."""
        await self._administer(self._up(), "set_favorite_node", lambda: num)

    async def remove_node(self, num: int) -> None:
        """Make the radio forget a node and its key (protocol.md §9.5); raises LinkDownError."""
        await self._administer(self._up(), "remove_by_nodenum", lambda: num)

    def peer(self, num: int) -> Peer | None:
        """What the own node knows of another node; the last known state while the link is down."""
        return nodeinfo.read_peer(self._nodes, num)

    def telemetry(self) -> Telemetry:
        """The own node's latest channel utilisation."""
        return nodeinfo.read_telemetry(self._nodes, self._node.num if self._node else 0)

    def must_restart(self) -> str:
        """Why only a new process can help, "" while the link is healthy; an absent node is healthy (DESIGN §3)."""
        now = self._clock.monotonic()
        if self._state is LinkState.STUCK:
            return "library threads do not end"
        if self._supervisor is not None and self._supervisor.done():
            return "the link supervisor ended"
        if now > self._promised_by:
            return "the link supervisor hangs"
        return self._trouble.hopeless(now)

    def status(self) -> dict[str, object]:
        """Facts for ``status``; JSON types only."""
        now = self._clock.monotonic()
        waiting = self._state is LinkState.DOWN and self._next_try_at > now
        queue = getattr(self._session.iface, "queueStatus", None) if self._session else None
        return {
            "device": self._device,
            "state": str(self._state),
            "since": self._since,
            "reason": self._reason,
            "node": self._node.id if self._node else "",
            "firmware": self._node.firmware if self._node else "",
            "next_try_s": round(self._next_try_at - now, 1) if waiting else 0.0,
            "queue_free": int(queue.free) if queue is not None else None,
            "orphans": len(self._orphans),
            **self._trouble.status(now),
        }

    # The supervisor.

    async def _supervise(self) -> None:
        while True:
            reason = await self._one_connection()
            if len(self._orphans) > self._timings.orphans:
                self._complaints.say(logging.ERROR, "connections to the node do not close; restart the program")
                self._promised_by = float("inf")
                self._change(LinkState.STUCK, f"{len(self._orphans)} connections do not close; last: {reason}")
                await asyncio.Event().wait()
            delay = self._trouble.delay_s(random.uniform(0.75, 1.25))
            self._next_try_at = self._promise(delay)
            await self._clock.sleep(delay)

    async def _one_connection(self) -> str:
        """Make a connection and live with it; the reason of its end."""
        self._promise(self._timings.connect_s + self._timings.handshake_s + self._timings.call_s)
        self._change(LinkState.CONNECTING, self._reason)
        session = Session(self._build, self._clock, self._timings, self._poster())
        self._session, self._lost = session, asyncio.get_running_loop().create_future()
        try:
            reason = await self._live(session, self._lost)
        except (RadioError, OSError) as error:
            reason = explain(error)
        except Exception as error:  # whatever the library throws costs a connection, never the link
            reason = explain(error)
            log.debug("unexpected while connected", exc_info=True)
        self._end(session, reason)
        reason = self._account(session, self._lost.result())
        self._change(LinkState.DOWN, reason)
        await self._discard(session)
        return reason

    async def _live(self, session: Session, lost: asyncio.Future[str]) -> str:
        """Handshake, then heartbeats until the end; gives or raises the reason."""
        await self._call(session, session.open, self._timings.connect_s + self._timings.handshake_s)
        self._clock_set = None
        missed = 0
        while not lost.done():
            self._promise(self._timings.probe_answer_s + 4 * self._timings.call_s)
            await self._care_for_clock(session)
            alive = await self._probe(session, lost)
            missed = 0 if alive else missed + 1
            if missed >= self._timings.probe_failures:
                return "the node does not answer any more"
            if self._trouble.is_steady(self._clock.monotonic()):
                self._complaints.forget()
            self._promise(self._timings.probe_every_s)
            await asyncio.wait({lost}, timeout=self._timings.probe_every_s)
        return lost.result()

    async def _probe(self, session: Session, lost: asyncio.Future[str]) -> bool:
        """Whether a heartbeat is answered with a new queueStatus, or the node is excused from answering."""
        before = await self._call(session, session.beat)
        iface, began = session.iface, time.monotonic()
        while time.monotonic() - began < self._timings.probe_answer_s and not lost.done():
            if session.beat_answered(before):
                self._mute_heartbeat = self._mute_heartbeat and not session.answered
                return True
            await asyncio.sleep(min(0.1, self._timings.probe_answer_s / 20))
        if iface is None or lost.done():
            return True
        quiet_s = time.monotonic() - iface.last_frame_at
        if quiet_s < self._timings.probe_answer_s and not session.answered:
            self._mute_heartbeat = True  # it talks but never answers: from now on any frame proves life
        old = nodeinfo.version_numbers(self._node.firmware if self._node else "") < HEARTBEAT_SINCE
        return (old or self._mute_heartbeat) and quiet_s < self._timings.frame_within_s

    async def _care_for_clock(self, session: Session) -> None:
        """Give the node our time after a connect, once a day, and when ours jumped; its backlog needs dates (§2.3)."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if now < PLAUSIBLE_TIME or self._admin_gate.locked():
            return  # other commands are on their way: the next heartbeat comes by here again
        if self._clock_set is not None:
            offset, at = self._clock_set
            jumped = abs(now - monotonic - offset) > self._timings.clock_off_s
            if not jumped and monotonic - at < self._timings.clock_every_s:
                return
        self._clock_set = (now - monotonic, monotonic)
        await self._administer(session, "set_time_only", lambda: int(self._clock.now()))

    async def _administer(self, session: Session, field: str, value: Callable[[], int]) -> None:
        """One admin command, the session key asked for before; packets are spaced (protocol.md §9.11)."""
        async with self._admin_gate:
            await self._admin_pause()
            if not await self._call(session, session.ask_session_key):
                await self._admin_pause()
            await self._call(session, lambda: session.administer(field, value()))
            self._admin_at = time.monotonic()

    async def _admin_pause(self) -> None:
        await asyncio.sleep(max(0.0, self._admin_at + self._timings.admin_gap_s - time.monotonic()))
        self._admin_at = time.monotonic()

    # Crossing between the loop and the library's threads.

    async def _call(self, session: Session, call: Callable[[], T], limit_s: float | None = None) -> T:
        """Run a call on the session's thread. What breaks or exceeds its time ends the session, as LinkDownError."""
        lost = self._lost
        if session is not self._session or lost is None or lost.done():
            raise LinkDownError("the link was lost")
        future = asyncio.wrap_future(session.worker.submit(call))
        try:
            await asyncio.wait(
                (future, lost), timeout=limit_s or self._timings.call_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not future.done():
                future.cancel()
        if future.cancelled():
            self._end(session, "a call into the meshtastic library hangs")
            raise LinkDownError(lost.result())
        try:
            return future.result()
        except (LinkDownError, NotOnAirError):
            raise
        except Exception as error:  # whatever the library raises ends this connection
            self._end(session, explain(error))
            raise LinkDownError(lost.result()) from error

    def _poster(self) -> Callable[[Session, Heardable], None]:
        loop = asyncio.get_running_loop()

        def post(session: Session, value: Heardable) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                loop.call_soon_threadsafe(self._take, session, value)

        return post

    def _take(self, session: Session, value: Heardable) -> None:
        """On the loop. Values of a connection that is over are dropped; it is over once it is closed."""
        if session is not self._session:
            return
        if isinstance(value, Established):
            if self._lost is None or self._lost.done():
                return
            self._established(session, value.node)
        elif isinstance(value, Lost):
            if session.established_at is not None:  # before that, open() raises with a better reason
                self._end(session, (session.iface.loss_reason if session.iface else "") or "the connection was lost")
        else:
            if isinstance(value, Receipt) and self._last_sent and value.packet_id == self._last_sent[0]:
                self._last_confirmed.set()
            self._emit(value)

    def _established(self, session: Session, node: NodeInfo) -> None:
        before = self._node
        self._node, self._nodes = node, session.iface.nodesByNum if session.iface else None
        self._trouble.connected(self._clock.monotonic())
        level, reason = logging.INFO, f"connected to {nodeinfo.describe(node)}"
        if before is not None and before.num != node.num:
            level, reason = logging.WARNING, f"another node answers, not {before.id} but {nodeinfo.describe(node)}"
        self._complaints.say(level, reason)
        self._change(LinkState.UP, reason)

    # Helpers, on the loop.

    def _up(self) -> Session:
        session, lost = self._session, self._lost
        if self._state is not LinkState.UP or self._stopping or session is None or lost is None or lost.done():
            raise LinkDownError(self._reason or "no node is connected")
        return session

    def _end(self, session: Session, reason: str) -> None:
        """Mark the current connection as lost; the first reason stands."""
        if session is self._session and self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    def _account(self, session: Session, reason: str) -> str:
        iface = session.iface
        was_up = session.established_at is not None
        opened = was_up or (iface is not None and iface.transport_open)
        reason = self._trouble.ended(reason, self._clock.monotonic(), opened=opened)
        text = f"link to {self._device} lost: {reason}" if was_up else f"no link to {self._device}: {reason}"
        text += f"; trying again, at most {self._timings.backoff_max_s:.0f} s apart"
        if self._complaints.say(logging.WARNING, text):
            self._complaints.forget_good_news()
        return reason

    async def _discard(self, session: Session) -> None:
        """Close, bounded. What arrives until then still counts: the node has given it away for good (§2.5)."""
        self._promise(self._timings.close_s)
        session.close()
        began = time.monotonic()
        while session.alive() and time.monotonic() - began < self._timings.close_s:  # noqa: ASYNC110 - threads cannot set
            await asyncio.sleep(0.02)
        if session is self._session:
            self._session = None
        self._orphans = [each for each in (*self._orphans, session) if each.alive()]

    async def _linger(self) -> None:
        """Wait for a send in progress, and for the last packet's receipt while the node may still hold it (§8)."""
        try:
            async with asyncio.timeout(self._timings.call_s), self._send_gate:
                pass
            if self._last_sent is not None and self._state is LinkState.UP:
                left_s = self._last_sent[1] + self._timings.linger_s - self._clock.monotonic()
                if left_s > 0:
                    async with asyncio.timeout(left_s):
                        await self._last_confirmed.wait()
        except TimeoutError:
            log.debug("closing without waiting any longer")

    def _promise(self, seconds: float) -> float:
        """When the supervisor's present step ends; ``must_restart`` holds it to that, with some slack."""
        ends = self._clock.monotonic() + seconds
        self._promised_by = ends + self._timings.slack_s
        return ends

    def _change(self, state: LinkState, reason: str) -> None:
        self._reason = reason
        if state is not self._state:
            self._state = state
            self._since = self._clock.now()
            self._emit(LinkChange(state, reason))

    def _emit(self, event: LinkEvent) -> None:
        try:
            self._sink(event)
        except Exception:  # a bug in the receiver must not end the link
            log.exception("the receiver of link events failed")


def _report_crash(supervisor: asyncio.Task[None]) -> None:
    """A supervisor never ends by itself; ``must_restart`` sees that it did, the log says why."""
    if not supervisor.cancelled() and (error := supervisor.exception()) is not None:
        log.error("the link supervisor failed", exc_info=error)


def _nobody(_event: LinkEvent) -> None:
    """The sink before ``start``."""
