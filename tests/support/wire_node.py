"""A node reduced to its stream: whatever a wire can do, on TCP and on a pseudo terminal, at the test's command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import tty

from meshtastic.protobuf import mesh_pb2

from meshai.config.model import Connection
from meshai.radio.link import LinkChange, LinkState
from meshai.radio.timings import Timings

OWN, PEER = 0xA11CE001, 0xB0B00002
KEY = bytes(range(32))
FAST = Timings(
    connect_s=1.0,
    silence_s=3.0,
    handshake_s=6.0,
    probe_every_s=0.1,
    probe_answer_s=2.0,
    frame_within_s=10.0,
    pause_s=0.005,
    write_s=1.0,
    room_s=0.3,
    call_s=4.0,
    close_s=4.0,
    backoff_min_s=0.02,
    backoff_max_s=0.1,
    brief_s=0.05,
    steady_s=0.5,
    backlog_quiet_s=0.15,
    backlog_max_s=0.6,
    linger_s=0.02,
    admin_gap_s=0.02,
    slack_s=5.0,
)
"""Every pause shrunk. What a busy computer may exceed by itself is not; tests of those deadlines shrink them."""


class WireNode:
    """Speaks the stream API as far as the library needs it; every attribute is a fault to switch on."""

    def __init__(self) -> None:
        self.num = OWN
        self.firmware = "2.7.26.54e0d8d"
        self.answers_config = True
        self.completes_config = True
        self.answers_heartbeat = True
        self.peers = [PEER]
        self.backlog: list[mesh_pb2.FromRadio] = []
        self.free = 16
        self.connections = 0
        self.received: list[mesh_pb2.ToRadio] = []
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Bytes from the client."""
        self._buffer += data
        while True:
            start = self._buffer.find(b"\x94\xc3")
            if start < 0 or len(self._buffer) < start + 4:
                return
            size = int.from_bytes(self._buffer[start + 2 : start + 4], "big")
            if len(self._buffer) < start + 4 + size:
                return
            frame, self._buffer = self._buffer[start + 4 : start + 4 + size], self._buffer[start + 4 + size :]
            message = mesh_pb2.ToRadio.FromString(frame)
            self.received.append(message)
            self._answer(message)

    def _answer(self, message: mesh_pb2.ToRadio) -> None:
        kind = message.WhichOneof("payload_variant")
        if kind == "want_config_id" and self.answers_config:
            self.connections += 1
            self._configure(message.want_config_id)
        elif (kind == "heartbeat" and self.answers_heartbeat) or kind == "packet":
            self.say(queueStatus={"free": self.free, "maxlen": 16, "mesh_packet_id": message.packet.id})

    def _configure(self, nonce: int) -> None:
        self.say(my_info={"my_node_num": self.num})
        for num in [self.num, *self.peers]:
            user = mesh_pb2.User(id=f"!{num:08x}", long_name=f"Node {num:x}", short_name="N")
            self.say(node_info={"num": num, "user": user})
        self.say(metadata={"firmware_version": self.firmware})
        self.say(channel={"index": 0, "settings": {"psk": b"\x01"}, "role": "PRIMARY"})
        self.say(config={"lora": {"use_preset": True, "region": "EU_868", "hop_limit": 3}})
        if self.completes_config:
            self.say(config_complete_id=nonce)
            for frame in self.backlog:
                self.write(framed(frame))
            self.backlog.clear()

    def say(self, **fields) -> None:
        """One FromRadio."""
        self.write(framed(mesh_pb2.FromRadio(**fields)))

    def write(self, data: bytes) -> None:
        """Raw bytes to the client."""
        raise NotImplementedError

    def deliver(self, text: str, packet_id: int, **fields) -> None:
        """A text DM from the mesh."""
        self.write(framed(mail(text, packet_id, **fields)))

    def texts(self) -> list[mesh_pb2.MeshPacket]:
        """The text packets the client handed over."""
        return [m.packet for m in self.received if m.packet.decoded.portnum == 1]

    def admin(self) -> list[mesh_pb2.MeshPacket]:
        """The admin packets the client handed over."""
        return [m.packet for m in self.received if m.packet.decoded.portnum == 6]


class TcpWire(WireNode):
    """On a TCP port that stays the same when it is closed and opened again."""

    async def listen(self) -> None:
        port = getattr(self, "port", 0)
        self._writers: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def connection(self) -> Connection:
        return Connection(type="tcp", tcp_port=self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                self.feed(data)
        writer.close()

    def write(self, data: bytes) -> None:
        if self._writers and not self._writers[-1].is_closing():
            self._writers[-1].write(data)

    def eof(self) -> None:
        self._writers[-1].close()

    def break_off(self) -> None:
        """RST."""
        sock = self._writers[-1].get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writers[-1].transport.abort()

    async def refuse(self) -> None:
        """Stop listening and drop whoever is there."""
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.sleep(0)

    come_back = listen
    shut_down = refuse


class PtyWire(WireNode):
    """On a pseudo terminal behind a name that can vanish like a by-id link."""

    def __init__(self, link) -> None:
        super().__init__()
        self.link = link

    async def listen(self) -> None:
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._readable)
        self.link.symlink_to(os.ttyname(self._slave))

    @property
    def connection(self) -> Connection:
        return Connection(type="serial", serial_port=str(self.link))

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self.feed(os.read(self._master, 4096))

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._master, data)

    def break_off(self) -> None:
        """Unplugged, and plugged in again at once under another number."""
        self._unplug()
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._readable)
        self.link.symlink_to(os.ttyname(self._slave))

    eof = break_off

    def _unplug(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._slave)
        os.close(self._master)
        self.link.unlink()
        self._buffer = b""

    async def refuse(self) -> None:
        """Unplugged."""
        self._unplug()

    async def shut_down(self) -> None:
        if self.link.is_symlink():
            self._unplug()

    come_back = listen


class Watcher:
    """A sink that remembers, and can be waited on."""

    def __init__(self) -> None:
        self.events = []
        self._changed = asyncio.Event()

    def __call__(self, event) -> None:
        self.events.append(event)
        self._changed.set()

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition):
        """Wait for ``condition()``, looked at after every event and now and then; gives its value."""
        async with asyncio.timeout(10):
            while not (value := condition()):
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.02)
            return value

    async def ups(self, number):
        """Wait for the ``number``-th time the link came up."""
        return await self.until(lambda: sum(c.state is LinkState.UP for c in self.of(LinkChange)) >= number)

    async def change(self, state):
        """Wait for a change to ``state``; gives the latest."""
        return await self.until(lambda: next((c for c in self.of(LinkChange)[::-1] if c.state is state), None))


def framed(message: mesh_pb2.FromRadio) -> bytes:
    body = message.SerializeToString()
    return b"\x94\xc3" + len(body).to_bytes(2, "big") + body


def mail(text: str, packet_id: int, *, sender: int = PEER, to: int = OWN, **decoded) -> mesh_pb2.FromRadio:
    """A text DM as the node forwards it."""
    frame = mesh_pb2.FromRadio()
    packet = frame.packet
    setattr(packet, "from", sender)
    packet.to, packet.id, packet.rx_time = to, packet_id, 1_795_245_267
    packet.pki_encrypted, packet.public_key = True, KEY
    packet.decoded.CopyFrom(mesh_pb2.Data(portnum=1, payload=text.encode(), **decoded))
    return frame
