"""The device's client API on a stream: framing, configuration download, rate limits (docs/protocol.md §3.5, §7)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from meshtastic.protobuf import mesh_pb2

from meshai.radio.virtual import handshake
from meshai.radio.virtual.frame import ALERT, POSITION, TELEMETRY, TEXT, TRACEROUTE, WAYPOINT, Error
from meshai.radio.virtual.timeline import Timer

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

log = logging.getLogger(__name__)

START = b"\x94\xc3"
MAX_FRAME, MAX_PAYLOAD = 512, 233
"""Longest frame of the stream; longest Data.payload, beyond which a packet is malformed (protocol.md §1)."""
PAUSES_S = {TEXT: 2.0, POSITION: 10.0, WAYPOINT: 10.0, ALERT: 10.0, TELEMETRY: 10.0, TRACEROUTE: 30.0}
"""The least time between two packets of a port from one client (protocol.md §3.5)."""
HEARTBEAT_ANSWERED_SINCE, TEXT_PAUSE_SINCE = (2, 7, 4), (2, 7, 0)
"""Firmware that answers heartbeats with a QueueStatus, and that has the text limit (protocol.md §3.5, §5.3)."""
REMEMBERED_IDS = 20
POLL_BUSY_S, POLL_IDLE_S, BUSY_FOR_S = 0.005, 0.25, 2.0
"""The node looks at its stream every 5 ms, every 250 ms after 2 s of silence (protocol.md §9.1)."""
IDLE_TIMEOUT_S = 900.0
"""Real seconds of silence after which the node gives a client up (protocol.md §5.3): clients beat by real time."""


def framed(message: Any) -> bytes:  # noqa: ANN401
    """A FromRadio or ToRadio as the stream carries it."""
    body = bytes(message.SerializeToString())
    return START + len(body).to_bytes(2, "big") + body


class Deframer:
    """Finds frames in a stream of bytes; anything between them is skipped."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of the frames that are complete now."""
        self._buffer += data
        found: list[bytes] = []
        while (start := self._buffer.find(START)) >= 0:
            size = int.from_bytes(self._buffer[start + 2 : start + 4], "big")
            if len(self._buffer) >= start + 4 and size > MAX_FRAME:
                self._buffer = self._buffer[start + 1 :]
                continue
            if len(self._buffer) < start + 4 or len(self._buffer) < start + 4 + size:
                self._buffer = self._buffer[start:]
                return found
            found.append(self._buffer[start + 4 : start + 4 + size])
            self._buffer = self._buffer[start + 4 + size :]
        self._buffer = self._buffer[-1:] if self._buffer.endswith(START[:1]) else b""
        return found


@dataclass(slots=True)
class Manners:
    """What a node remembers of a client's sending. New with each TCP connection; one for a serial port until reboot."""

    last_at: dict[int, float] = field(default_factory=dict)
    ids: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED_IDS))

    def refuses(self, port: int, now: float) -> bool:
        """Whether a packet comes too soon after the last accepted one; a refused one does not restart the pause."""
        last = self.last_at.get(port)
        return last is not None and now - last < PAUSES_S.get(port, 0.0)

    def clear(self) -> None:
        """A reboot."""
        self.last_at.clear()
        self.ids.clear()


class Session:
    """One client on one stream. ``write`` gets bytes; ``close`` ends the connection from the node's side."""

    def __init__(
        self,
        node: VirtualNode,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        manners: Manners | None = None,
    ) -> None:
        self.node = node
        self.answers = True  # False: accepts and never says a word
        self.loses = False  # True: believes to be heard, but what it says is gone (WiFi lost)
        self.hang_after: int | None = None  # frames after which the configuration download stops for good
        self._write = write
        self._close = close
        self._manners = manners or Manners()
        self._deframer = Deframer()
        self._input: list[bytes] = []
        self._active_at = node.timeline.now()
        self._configured = False
        self._polling = False
        self._ended = False
        self._idle: Timer | None = None
        node.to_phone.watch(self._wake)
        self._watch_idle()

    def feed(self, data: bytes) -> None:
        """Bytes from the client."""
        self.node.timeline.catch_up()
        self._input.append(data)
        self._wake()
        self._active_at = self.node.timeline.now()

    def end(self) -> None:
        """The client is gone, or the node goes down. What it wrote last is still read; packets for it stay."""
        if self._ended:
            return
        if self.node.on:
            self._read()
        self.node.to_phone.forget_states()
        self._ended = True
        if self._idle is not None:
            self._idle.cancel()
        self.node.to_phone.unwatch(self._wake)

    def say(self, **fields: Any) -> None:  # noqa: ANN401
        """One FromRadio."""
        self._send(mesh_pb2.FromRadio(**fields))

    def _send(self, message: Any) -> None:  # noqa: ANN401
        if self._ended or not self.answers:
            return
        if not self.loses:
            self._write(framed(message))

    def _wake(self) -> None:
        if self._polling or self._ended:
            return
        self._polling = True
        timeline = self.node.timeline
        silent = timeline.now() - self._active_at
        delay = POLL_BUSY_S if silent < BUSY_FOR_S else POLL_IDLE_S - (silent - BUSY_FOR_S) % POLL_IDLE_S
        timeline.after(delay, self._poll)

    def _poll(self) -> None:
        self._polling = False
        if self._ended:
            return
        self._read()
        # After what the frames set off inside the node: its own answers leave in the same breath (recording 17).
        self.node.timeline.after(0, self._pump)

    def _read(self) -> None:
        data, self._input = b"".join(self._input), []
        for frame in self._deframer.feed(data):
            self._frame(frame)

    def _pump(self) -> None:
        while self._configured and self.answers and not self._ended and (item := self.node.to_phone.take()) is not None:
            self.say(**{item[0]: item[1]})

    def _frame(self, body: bytes) -> None:
        try:
            message = mesh_pb2.ToRadio.FromString(body)
        except DecodeError:
            log.debug("malformed frame of %d bytes from the client ignored", len(body))
            return
        kind = message.WhichOneof("payload_variant")
        if kind == "want_config_id":
            self._configure(message.want_config_id)
        elif kind == "heartbeat":
            if self.node.settings.version >= HEARTBEAT_ANSWERED_SINCE:
                self.node.modules.report_state(0)
        elif kind == "disconnect":
            self._configured = False
        elif kind == "packet" and len(message.packet.decoded.payload) <= MAX_PAYLOAD:
            self._packet(message.packet)

    def _configure(self, nonce: int) -> None:
        self._configured = False
        for sent, message in enumerate(handshake.download(self.node, nonce)):
            if self.hang_after is not None and sent >= self.hang_after:
                return
            self._send(message)
        self._configured = True

    def _packet(self, packet: Any) -> None:  # noqa: ANN401
        node, now = self.node, self.node.timeline.now()
        if packet.id and packet.id in self._manners.ids:
            log.debug("packet %08x from the client ignored, it was among the last %d", packet.id, REMEMBERED_IDS)
            return
        self._manners.ids.append(packet.id)
        port = packet.decoded.portnum
        limited = port != TEXT or node.settings.version >= TEXT_PAUSE_SINCE
        if limited and self._manners.refuses(port, now):
            # As if sent; the refusal goes to whoever the packet says it is from: nobody (protocol.md §3.5).
            node.modules.report_state(packet.id)
            if getattr(packet, "from") == node.num:
                node.router.tell_client(Error.RATE_LIMIT_EXCEEDED, packet.id)
            return
        if port in PAUSES_S:
            self._manners.last_at[port] = now
        error = node.router.send(packet)
        node.modules.report_state(packet.id, error)

    def _watch_idle(self) -> None:
        if self._ended:
            return
        timeline = self.node.timeline
        limit = IDLE_TIMEOUT_S * timeline.speed
        left = self._active_at + limit - timeline.now()
        if left <= 0:
            self._close()
            return
        self._idle = timeline.after(left, self._watch_idle)
