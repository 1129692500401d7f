"""The library's interfaces with their sharp edges taken off: no endless waits, no silent reconnects, no prints.

What differs from the stock classes, and why, stands at each override; ``docs/protocol.md`` §3.6 and §5 has the facts.
Everything here runs on the library's threads or on the sender thread, never on the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import termios
import threading
import time
from typing import Any, Protocol

import serial
from meshtastic.mesh_interface import MeshInterface
from meshtastic.protobuf import admin_pb2, mesh_pb2, portnums_pb2
from meshtastic.serial_interface import SerialInterface
from meshtastic.stream_interface import StreamInterface
from meshtastic.tcp_interface import TCPInterface

from meshai.radio.explain import explain
from meshai.radio.link import SendRequest
from meshai.radio.timings import Timings

log = logging.getLogger(__name__)

BAUD = 115200
WAKE_UP = bytes([0xC3]) * 32
"""Wakes a sleeping board and ends whatever half frame its parser is in (protocol.md §7)."""
READ_CHUNK = 4096
MAX_NODES = 1000
"""Node entries kept; the library adds one for every sender number it ever sees, forged ones included."""
MAX_PORT = 511
"""PortNum.MAX of the firmware."""
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Seconds, seconds, probes, milliseconds: a vanished WiFi node is noticed by the kernel within a minute."""


class Listener(Protocol):
    """Who is told what an interface hears. Called on the library's publishing thread; must only enqueue."""

    def on_established(self) -> None:
        """The configuration is complete."""

    def on_lost(self) -> None:
        """The connection ended, for whatever reason; may come more than once."""

    def on_packet(self, packet: object) -> None:
        """A packet, as the library's dictionary."""

    def on_notification(self, notification: object) -> None:
        """A clientNotification protobuf."""


class GuardedInterface(MeshInterface):  # type: ignore[misc]  # the library has no types
    """What all our interfaces share. ``listener`` ties pubsub's global topics to one connection."""

    def guard(self, listener: Listener, timings: Timings) -> None:
        """Must run before the library's constructor, whose threads already look at these."""
        self.listener = listener
        self.timings = timings
        self.loss_reason = ""
        self.transport_open = False
        self.came_up = False
        self.last_frame_at = time.monotonic()
        self.bad_frames = 0
        self._config_asked = False
        self._said_goodbye = False
        self._write_gate = threading.Lock()

    def open(self) -> None:
        """Connect and wait for the node's configuration; raises whatever went wrong."""
        self.connect()
        self.waitForConfig()

    def threads(self) -> list[threading.Thread]:
        """The library's threads that have to end after ``close``."""
        return []

    def note_loss(self, reason: str) -> None:
        """Keep the first reason: what follows are its echoes."""
        self.loss_reason = self.loss_reason or reason

    def hand_over(self, request: SendRequest, payload: bytes, own_num: int) -> None:
        """Write one text packet under the id it was committed with.

        ``from`` is set although the firmware would: only so a refusal by the 2 s rule comes back (protocol.md §3.5).
        Priority RELIABLE as the stock client's: people's own texts go first (protocol.md §3.1).
        """
        packet = mesh_pb2.MeshPacket()
        setattr(packet, "from", own_num)
        packet.id = request.packet_id
        packet.channel = request.channel_index
        packet.priority = mesh_pb2.MeshPacket.Priority.RELIABLE
        packet.decoded.portnum = portnums_pb2.PortNum.TEXT_MESSAGE_APP
        packet.decoded.payload = payload
        if request.reply_id is not None:
            packet.decoded.reply_id = request.reply_id
        if request.is_tapback:
            packet.decoded.emoji = 1
        self._sendPacket(
            packet,
            destinationId=request.to_num,
            wantAck=request.want_ack,
            hopLimit=request.hop_limit,
            pkiEncrypted=request.public_key is not None,
            publicKey=request.public_key,
        )

    def ask_session_key(self) -> None:
        """Request the key admin packets carry, unless it is there."""
        self.localNode.ensureSessionKey()

    def has_session_key(self, own_num: int) -> bool:
        """Whether the node answered ``ask_session_key``."""
        return bool((self.nodesByNum or {}).get(own_num, {}).get("adminSessionPassKey"))

    def administer(self, **command: int) -> None:
        """One local admin packet, such as ``set_time_only=…``. Only one: pairs are dropped (protocol.md §9.11)."""
        self.localNode._sendAdmin(admin_pb2.AdminMessage(**command))  # noqa: SLF001 - setTime() and friends send two

    def waitForConfig(self) -> None:  # noqa: N802 - the library's name
        """One look is enough after the handshake; the stock method polls ``timeout`` long for a non-empty node list."""
        if self.myInfo is None or not self.myInfo.my_node_num:
            raise ConnectionError("the node sent its configuration without its own number")

    def _waitConnected(self, timeout: float | None = None) -> None:  # noqa: N802
        """Bounded in all and by silence; the stock 30 s cut off big node lists (protocol.md §5.1).

        ``_sendPacket`` calls this before every packet: once up, it only says whether the link still stands.
        """
        if self.came_up:
            if not self.isConnected.is_set():
                raise ConnectionError(self.loss_reason or "the connection was lost")
            return
        began = time.monotonic()
        while not self.isConnected.wait(0.05):
            now = time.monotonic()
            if self.loss_reason:
                raise ConnectionError(self.loss_reason)
            if now - max(began, self.last_frame_at) > self.timings.silence_s:
                raise ConnectionError("the node accepts the connection but sends nothing")
            if now - began > (timeout or self.timings.handshake_s):
                raise ConnectionError("the node did not finish sending its configuration in time")
        if self.failure:
            raise self.failure

    def _connected(self) -> None:
        super()._connected()
        self.came_up = True  # after: _waitConnected takes "came up, not connected" for a loss

    def _startConfig(self) -> None:  # noqa: N802
        """Ask for the configuration once per interface.

        The library asks again when the node says ``rebooted``. What is queued in the node would then arrive at
        an interface that is about to be replaced, and be lost (protocol.md §2.5).
        """
        if self._config_asked:
            self.note_loss("the node rebooted")
            return
        self._config_asked = True
        super()._startConfig()

    def _startHeartbeat(self) -> None:  # noqa: N802
        """Nothing: the probe sends heartbeats, from the sender thread.

        The library's timer would write from a second thread, live on after a loss, and die with a traceback (§5.3).
        """

    def _sendToRadio(self, toRadio: Any) -> None:  # noqa: ANN401, N802, N803
        """Write at once. The stock queue spins for ever at ``free == 0`` and resends nothing (protocol.md §3.6)."""
        if not self._write_gate.acquire(timeout=self.timings.write_s):
            raise ConnectionError("an earlier write to the node hangs")
        try:
            self._sendToRadioImpl(toRadio)
        finally:
            self._write_gate.release()

    def _handleQueueStatusFromRadio(self, queueStatus: Any) -> None:  # noqa: ANN401, N802, N803
        """Keep the latest; the stock method also files unknown ids in the queue we do not use."""
        self.queueStatus = queueStatus

    def _sendDisconnect(self) -> None:  # noqa: N802
        """Best effort and once: an error here must not keep ``close`` from ending the reader."""
        if self._said_goodbye:
            return
        self._said_goodbye = True
        try:
            super()._sendDisconnect()
        except Exception as error:  # noqa: BLE001 - the port may fail in any way while it goes away
            log.debug("no goodbye to the node: %s", explain(error))

    def _handleFromRadio(self, fromRadioBytes: bytes) -> None:  # noqa: N802, N803
        """A damaged frame costs itself, never the reader thread; the library would print a traceback.

        The library's node lists stay bounded: it keeps an entry for every sender number it ever sees.
        """
        self.last_frame_at = time.monotonic()
        try:
            mesh_pb2.FromRadio.FromString(fromRadioBytes)
            super()._handleFromRadio(fromRadioBytes)
            if max(len(self.nodesByNum or ()), len(self.nodes or ())) > MAX_NODES:
                self._forget_nodes()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any library code may meet any bytes here
            self.bad_frames += 1
            log.debug("a frame was skipped: %s", type(error).__name__)

    def _handlePacketFromRadio(self, meshPacket: Any, hack: bool = False) -> None:  # noqa: ANN401, N802, N803
        """Drop own packets that come back, which the library would print, and ports that cannot exist.

        For each port number ever seen pubsub keeps a topic.
        """
        if getattr(meshPacket, "from") and meshPacket.decoded.portnum <= MAX_PORT:
            super()._handlePacketFromRadio(meshPacket, hack)

    def _forget_nodes(self) -> None:
        """Keep the half heard last, and the own node."""
        own = self.myInfo.my_node_num if self.myInfo is not None else 0
        by_age = sorted(self.nodesByNum, key=lambda num: (num == own, self.nodesByNum[num].get("lastHeard") or 0))
        for num in by_age[: len(by_age) - MAX_NODES // 2]:
            del self.nodesByNum[num]
        self.nodes = {f"!{num:08x}": entry for num, entry in self.nodesByNum.items()}


class _BufferedStream(GuardedInterface):
    """Reads in chunks what the library takes byte by byte, and says why a stream ended."""

    def guard(self, listener: Listener, timings: Timings) -> None:
        super().guard(listener, timings)
        self._chunk = b""
        self._taken = 0

    def threads(self) -> list[threading.Thread]:
        thread = getattr(self, "_rxThread", None)
        return [thread] if isinstance(thread, threading.Thread) else []

    def connect_stream(self) -> None:
        """The stock ``StreamInterface.connect``, its pause a setting: wake the node, read, ask for everything."""
        self._writeBytes(WAKE_UP)
        time.sleep(self.timings.pause_s)
        self._rxThread.start()
        self._startConfig()
        self._waitConnected()

    def _readBytes(self, length: int) -> bytes | None:  # noqa: N802
        if self._taken >= len(self._chunk):
            if self._wantExit:
                return None
            try:
                self._chunk = self._read_chunk()
            except Exception as error:  # any failed read is a loss
                self.note_loss(explain(error))
                raise
            self._taken = 0
        piece = self._chunk[self._taken : self._taken + length]
        self._taken += length
        return piece

    def _read_chunk(self) -> bytes:
        raise NotImplementedError

    def _handleLogByte(self, b: bytes) -> None:  # noqa: N802
        """Text between frames is the node's log; the library would keep a line without end without bound."""


class TcpNode(_BufferedStream, TCPInterface):  # type: ignore[misc]
    """A node on the network. Every loss ends this object; it never reconnects by itself (protocol.md §5.3)."""

    def __init__(self, host: str, port: int, listener: Listener, timings: Timings) -> None:
        self.guard(listener, timings)
        self.socket: socket.socket | None = None
        TCPInterface.__init__(self, host, portNumber=port, connectNow=False, timeout=int(timings.handshake_s) or 1)

    def connect(self) -> None:
        """Connect and shake hands."""
        self.myConnect()
        self.connect_stream()

    def myConnect(self) -> None:  # noqa: N802
        """Connect with a time limit, and let the kernel notice a peer that vanished."""
        sock = socket.create_connection((self.hostname, self.portNumber), timeout=self.timings.connect_s)
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.socket = sock
        self.transport_open = True

    def _reconnect(self) -> None:
        raise ConnectionError(self.loss_reason or "the connection was lost")

    def _read_chunk(self) -> bytes:
        sock = self.socket
        if sock is None:
            raise ConnectionError("the connection was closed")
        data: bytes = sock.recv(READ_CHUNK)
        if not data:
            raise ConnectionError("the node closed the connection")
        return data

    def _writeBytes(self, b: bytes) -> None:  # noqa: N802
        sock = self.socket
        if sock is None:
            if self._wantExit:
                return  # close() says goodbye to a socket it has just closed
            raise ConnectionError(self.loss_reason or "the connection was lost")
        try:
            sock.sendall(b)
        except OSError as error:
            self.note_loss(explain(error))
            raise


class SerialNode(_BufferedStream, SerialInterface):  # type: ignore[misc]
    """A node on a serial port."""

    def __init__(self, path: str, listener: Listener, timings: Timings) -> None:
        self.guard(listener, timings)
        SerialInterface.__init__(self, devPath=path, connectNow=False, timeout=int(timings.handshake_s) or 1)

    def connect(self) -> None:
        """Lock the port first, then keep DTR from dropping at close.

        The library does it the other way round and disturbs a board that another program is using (protocol.md §8).
        """
        # A write timeout makes pyserial retry partial writes; with 0 it drops the rest, or spins on a full buffer.
        self.stream = serial.Serial(self.devPath, BAUD, exclusive=True, timeout=0.5, write_timeout=self.timings.write_s)
        self.transport_open = True
        with contextlib.suppress(termios.error):  # a pseudo terminal may not know modem lines
            self._set_hupcl_with_termios(self.stream.fileno())
        self.connect_stream()

    def close(self) -> None:
        """Say goodbye, let written bytes leave, wake the reader; bounded, as the library's flush() is not (§3.6)."""
        self._sendDisconnect()
        self._wantExit = True
        until = time.monotonic() + 1.0
        with contextlib.suppress(Exception):  # the port may be gone
            while self.stream is not None and self.stream.out_waiting and time.monotonic() < until:
                time.sleep(0.02)
            self.stream.cancel_read()
        StreamInterface.close(self)

    def _read_chunk(self) -> bytes:
        stream = self.stream
        if stream is None:
            raise ConnectionError("the port was closed")
        data: bytes = stream.read(max(1, min(stream.in_waiting, READ_CHUNK)))
        return data

    def _writeBytes(self, b: bytes) -> None:  # noqa: N802
        stream = self.stream
        if stream is None:
            if self._wantExit:
                return
            raise ConnectionError(self.loss_reason or "the port was closed")
        try:
            stream.write(b)
        except OSError as error:
            self.note_loss(explain(error))
            raise
        time.sleep(self.timings.pause_s)  # as the stock client: small boards need a moment between frames
