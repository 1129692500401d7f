"""One connection from its first byte to its last: an interface, its sender thread, and what was heard over it.

A session is used once. After any trouble it is closed for good and the next one starts from nothing
(protocol.md §5.3). Methods marked "blocking" run on the sender thread; ``on_*`` run on the library's threads;
both only hand values to ``post``, which crosses to the event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from meshtastic import publishingThread
from pubsub import pub

from meshai.clock import Clock
from meshai.errors import LinkDownError, NotOnAirError
from meshai.radio import decode, library
from meshai.radio.interfaces import GuardedInterface, Listener
from meshai.radio.link import Alert, Heard, Inbound, NodeInfo, Receipt, SendRequest
from meshai.radio.nodeinfo import read_node
from meshai.radio.timings import Timings
from meshai.radio.worker import DaemonWorker

log = logging.getLogger(__name__)

QUEUE_FULL = "queue full"
"""The ``NotOnAirError.reason`` when the node's transmit queue stays full, or it has no radio at all."""
MAX_PAYLOAD_BYTES = 233
"""DATA_PAYLOAD_LEN: the node throws a larger payload away without a word (protocol.md §1)."""
FLUSH_S = 1.0
"""Longest wait for the library's publishing thread at close."""
QUEUE_RESERVE = 2
"""Slots left to relayed traffic; a full queue evicts packets (protocol.md §3.6)."""


@dataclass(frozen=True, slots=True)
class Established:
    """The node sent its whole configuration."""

    node: NodeInfo


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection ended."""


Heardable = Inbound | Receipt | Heard | Alert | Established | Lost
Post = Callable[["Session", Heardable], None]
Build = Callable[[Listener, Timings], GuardedInterface]


class Session:
    """Owns an interface and the only thread that calls into it."""

    def __init__(self, build: Build, clock: Clock, timings: Timings, post: Post) -> None:
        self.worker = DaemonWorker("radio sender")
        self.iface: GuardedInterface | None = None
        self.node: NodeInfo | None = None
        self.ended = threading.Event()
        self.established_at: float | None = None
        self.answered = False  # a heartbeat, at least once
        self._build = build
        self._clock = clock
        self._timings = timings
        self._post = post
        self._burst_until = 0.0
        self._closer: threading.Thread | None = None

    # Blocking calls, on the sender thread.

    def open(self) -> None:
        """Blocking. Find the node, connect, and wait for its configuration; raises what went wrong."""
        subscribe()
        library.keep_quiet()
        self.iface = self._build(self, self._timings)
        if self.ended.is_set():
            raise LinkDownError("closed while connecting")
        self.iface.open()

    def transmit(self, request: SendRequest, payload: bytes) -> None:
        """Blocking. Write one packet once the node's queue has room; raises NotOnAirError, LinkDownError, OSError."""
        iface = self._live_interface()
        self._wait_for_room(iface)
        try:
            iface.hand_over(request, payload, self.node.num if self.node else 0)
        except (ValueError, TypeError) as error:  # a field out of range: it would fail on every connection
            log.warning("packet %d is malformed: %s", request.packet_id, error)
            raise NotOnAirError("BAD_REQUEST") from error

    def beat(self) -> object:
        """Blocking. Send a heartbeat; gives the queueStatus of before, which a living node replaces."""
        iface = self._live_interface()
        before: object = iface.queueStatus
        iface.sendHeartbeat()
        return before

    def beat_answered(self, before: object) -> bool:
        """Whether a queueStatus came since ``before``; one without a packet id answers a heartbeat (§7)."""
        status = self.iface.queueStatus if self.iface is not None else None
        if status is before:
            return False
        self.answered = self.answered or (status is not None and not status.mesh_packet_id)
        return True

    def ask_session_key(self) -> bool:
        """Blocking. Request the admin session key; True when it is already there."""
        iface = self._live_interface()
        own = self.node.num if self.node else 0
        if iface.has_session_key(own):
            return True
        iface.ask_session_key()
        return False

    def has_session_key(self) -> bool:
        """Whether the node has answered ``ask_session_key``."""
        return self.iface is not None and self.iface.has_session_key(self.node.num if self.node else 0)

    def administer(self, field: str, value: int) -> None:
        """Blocking. One local admin command."""
        iface = self._live_interface()
        iface.administer(**{field: value})
        if field == "remove_by_nodenum" and iface.nodesByNum is not None:
            iface.nodesByNum.pop(value, None)  # the library keeps its copy: the next NodeInfo must show as news

    def close(self) -> threading.Thread:
        """Start closing in a throw-away thread, which may hang, and return that thread."""
        self.ended.set()
        if self.iface is not None:
            self.iface.note_loss("closed")  # ends a handshake in progress
        self.worker.stop()
        if self._closer is None:
            self._closer = threading.Thread(target=self._close, name="radio closer", daemon=True)
            self._closer.start()
        return self._closer

    def alive(self) -> bool:
        """Whether any thread of this session still runs."""
        threads = [self.worker.thread, *(self.iface.threads() if self.iface else [])]
        if self._closer is not None:
            threads.append(self._closer)
        return any(thread.is_alive() for thread in threads)

    # What the library's threads tell us.

    def on_established(self) -> None:
        """Runs before the first queued packet: both come through the same thread in order."""
        self.established_at = time.monotonic()
        self._burst_until = self.established_at + self._timings.backlog_quiet_s
        self.node = read_node(self.iface)
        if self.node.num:  # else open() is about to say that the node did not tell its number
            self._post(self, Established(self.node))

    def on_lost(self) -> None:
        """May be the echo of our own close."""
        self._post(self, Lost())

    def on_packet(self, packet: object) -> None:
        """Build values, nothing else (protocol.md §2.2)."""
        own_num = self.node.num if self.node else 0
        values = decode.decode(
            packet,
            own_num=own_num,
            now=self._clock.now(),
            backlog=self._in_backlog(),
            channels=self.node.channels if self.node else (),
        )
        for value in values:
            if not isinstance(value, Receipt):
                self._extend_backlog()
            self._post(self, value)

    def on_notification(self, notification: object) -> None:
        """The node tells its user something."""
        value = decode.alert(notification)
        if value is not None:
            self._post(self, value)

    # Helpers.

    def _in_backlog(self) -> bool:
        """The burst after a connect lasts until ``backlog_quiet_s`` without a packet, at most ``backlog_max_s``."""
        return self.established_at is None or time.monotonic() < self._burst_until

    def _extend_backlog(self) -> None:
        if self.established_at is not None and self._in_backlog():
            end = self.established_at + self._timings.backlog_max_s
            self._burst_until = min(time.monotonic() + self._timings.backlog_quiet_s, end)

    def _live_interface(self) -> GuardedInterface:
        if self.iface is None or self.ended.is_set():
            raise LinkDownError("the link is down")
        return self.iface

    def _wait_for_room(self, iface: GuardedInterface) -> None:
        """The library counts nothing any more; a stale report is refreshed by a heartbeat (protocol.md §3.6)."""
        until = time.monotonic() + self._timings.room_s
        asked_again = 0.0
        while not _has_room(iface.queueStatus):
            now = time.monotonic()
            if now >= until:
                raise NotOnAirError(QUEUE_FULL)
            if now >= asked_again:
                iface.sendHeartbeat()
                asked_again = now + self._timings.room_s / 4
            if self.ended.wait(min(0.1, self._timings.room_s / 20)):
                raise LinkDownError("the link was lost while the node's queue was full")

    def _close(self) -> None:
        self._close_interface()
        self.worker.thread.join()
        self._close_interface()  # an open() in progress may have got through meanwhile
        for thread in self.iface.threads() if self.iface else ():
            if thread.is_alive():
                thread.join()
        flushed = threading.Event()  # what the reader has taken is published before the session counts as closed
        publishingThread.queueWork(flushed.set)
        flushed.wait(FLUSH_S)

    def _close_interface(self) -> None:
        try:
            if self.iface is not None:
                self.iface.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - half-built and half-dead objects may fail in any way
            log.debug("closing: %s", type(error).__name__)


def _has_room(status: object) -> bool:
    """None: an old firmware, or nothing sent yet."""
    return status is None or int(getattr(status, "free", 0)) > QUEUE_RESERVE


def payload_of(request: SendRequest) -> bytes:
    """The text as bytes; raises NotOnAirError for what no node would take, before anything is written.

    The reasons are Routing.Error names, so that the sender treats them as it treats the node's own refusals.
    """
    try:
        payload = request.text.encode("utf-8")
    except UnicodeEncodeError:
        log.warning("packet %d is not valid Unicode", request.packet_id)
        raise NotOnAirError("BAD_REQUEST") from None
    if not payload:
        log.warning("packet %d has no text", request.packet_id)
        raise NotOnAirError("BAD_REQUEST")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise NotOnAirError("TOO_LARGE")
    return payload


def subscribe() -> None:
    """Listen to the library's topics, once per process and before any interface exists (protocol.md §2.2).

    The topics are global; each of our interfaces carries its own listener, so nothing here needs a registry,
    and events of interfaces that are not ours are left alone.
    """
    pub.subscribe(_on_established, "meshtastic.connection.established")
    pub.subscribe(_on_lost, "meshtastic.connection.lost")
    pub.subscribe(_on_receive, "meshtastic.receive")
    pub.subscribe(_on_notification, "meshtastic.clientNotification")


def _listener(interface: object) -> Listener | None:
    return interface.listener if isinstance(interface, GuardedInterface) else None


def _on_established(interface: object) -> None:
    if listener := _listener(interface):
        listener.on_established()


def _on_lost(interface: object) -> None:
    if listener := _listener(interface):
        listener.on_lost()


def _on_receive(packet: object, interface: object) -> None:
    if listener := _listener(interface):
        listener.on_packet(packet)


def _on_notification(notification: object, interface: object) -> None:
    if listener := _listener(interface):
        listener.on_notification(notification)
