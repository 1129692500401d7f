"""What goes wrong on a TCP or serial port, seen by a raw client (protocol.md §5.3)."""

import asyncio
import contextlib
import os
from dataclasses import dataclass, field

import pytest
from meshtastic.protobuf import mesh_pb2

from meshai.radio.virtual import Mesh, NodeSettings, PtyPort, TcpPort, packets
from meshai.radio.virtual.stream import Deframer, framed

WITHIN_S = 5.0


@dataclass
class Client:
    """A bare TCP client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    frames: list = field(default_factory=list)
    rest: bytes = b""

    @classmethod
    async def connect(cls, port):
        client = cls(*await asyncio.open_connection(port.host, port.port))
        client.writer.write(framed(mesh_pb2.ToRadio(want_config_id=7)))
        return client

    async def configured(self):
        return await self.until("config_complete_id")

    async def until(self, kind):
        deframer = Deframer()
        async with asyncio.timeout(WITHIN_S):
            while data := await self.reader.read(4096):
                for body in deframer.feed(data):
                    message = mesh_pb2.FromRadio.FromString(body)
                    self.frames.append(message.WhichOneof("payload_variant"))
                    if self.frames[-1] == kind:
                        return message
        return None

    async def ends(self):
        """Whether the connection is closed, and how."""
        async with asyncio.timeout(WITHIN_S):
            try:
                while await self.reader.read(4096):
                    pass
            except ConnectionResetError:
                return "RST"
            return "EOF"


@pytest.fixture
async def port():
    mesh = Mesh(speed=200)
    a, b = mesh.add(NodeSettings(long_name="A")), mesh.add(NodeSettings(long_name="B"))
    mesh.link(a, b)
    mesh.introduce()
    mesh.start()
    port = TcpPort(a)
    port.other = b
    await port.start()
    yield port
    await port.stop()
    mesh.stop()


@pytest.fixture
async def client(port):
    client = await Client.connect(port)
    await client.configured()
    yield client
    client.writer.close()


async def test_new_client_kicks_the_old(port, client):
    """§9.8"""
    second = await Client.connect(port)
    assert await client.ends() == "EOF"
    assert await second.configured()
    assert port.connections == 2
    second.writer.close()


@pytest.mark.parametrize(("fault", "how"), [("drop", "EOF"), ("reset", "RST")])
async def test_connection_ends_as_asked(port, client, fault, how):
    getattr(port, fault)()
    assert await client.ends() == how
    assert not port.connected


async def test_port_refuses_and_comes_back(port, client):
    port.refuse(10)
    assert await client.ends() == "EOF"
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)
    again = await back(port)
    assert await again.configured()
    again.writer.close()


async def back(port):
    async with asyncio.timeout(WITHIN_S):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return await Client.connect(port)
            await asyncio.sleep(0.005)


async def test_rebooting_node_refuses_then_answers(port, client):
    port.node.reboot()
    assert await client.ends() == "EOF"
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)
    again = await back(port)
    assert (await again.configured()).config_complete_id == 7
    assert port.node.boots == 1
    again.writer.close()


async def test_reboot_loop_goes_on(port, client):
    port.node.reboot_loop(3)
    await client.ends()
    async with asyncio.timeout(WITHIN_S):
        while port.node.boots < 3:
            await asyncio.sleep(0.005)
    again = await back(port)
    assert (await again.configured()).config_complete_id == 7
    again.writer.close()


async def test_silent_port_accepts_and_says_nothing(port):
    port.silent = True
    client = await Client.connect(port)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.reader.read(1), 0.1)
    client.writer.close()


async def test_handshake_can_hang_half_way(port):
    port.hang_after = 5
    client = await Client.connect(port)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.configured(), 0.2)
    assert len(client.frames) == 5
    client.writer.close()


async def test_stall_leaves_half_a_frame(port, client):
    port.stall(40)
    data = await asyncio.wait_for(client.reader.read(100), WITHIN_S)
    assert data == b"\x94\xc3\x00\x28" + b"\x1a" * 20
    client.writer.write(framed(mesh_pb2.ToRadio(heartbeat={})))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.reader.read(1), 0.1)


async def test_lost_wifi_swallows_what_the_node_says(port, client):
    """§2.5: delivery is destructive."""
    arrived = asyncio.Event()
    port.node.to_phone.watch(arrived.set)
    port.lose()
    port.other.send(packets.text(port.node.num, "gone", want_ack=False))
    async with asyncio.timeout(WITHIN_S):
        await arrived.wait()
        while len(port.node.to_phone):
            await asyncio.sleep(0.002)
    port.drop()
    assert await client.ends() == "EOF"
    again = await Client.connect(port)
    await again.configured()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(again.until("packet"), 0.1)
    again.writer.close()


async def test_stopped_port_stays_closed(port):
    port.refuse(1)
    await port.stop()
    port.node.reboot()
    await asyncio.sleep(0.1)
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)


async def test_another_node_answers_after_a_swap(port, client):
    port.swap(port.other)
    assert await client.ends() == "EOF"
    other = await Client.connect(port)
    assert (await other.until("my_info")).my_info.my_node_num == port.other.num
    port.node.reboot()
    assert await other.ends() == "EOF"
    other.writer.close()


async def test_stop_does_not_wait_for_a_client_that_never_reads(port):
    client = await Client.connect(port)
    port.node.know_strangers(90)
    for _ in range(200):
        client.writer.write(framed(mesh_pb2.ToRadio(want_config_id=7)))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(port.stop(), WITHIN_S)
    client.writer.transport.abort()


class Tty:
    """A bare client of a serial port."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self.deframer = Deframer()

    def tell(self, **fields):
        os.write(self.fd, framed(mesh_pb2.ToRadio(**fields)))

    async def until(self, kind):
        async with asyncio.timeout(WITHIN_S):
            while True:
                with contextlib.suppress(BlockingIOError):
                    for body in self.deframer.feed(os.read(self.fd, 4096)):
                        message = mesh_pb2.FromRadio.FromString(body)
                        if message.WhichOneof("payload_variant") == kind:
                            return message
                await asyncio.sleep(0.002)

    def close(self):
        os.close(self.fd)


@pytest.fixture
async def serial(tmp_path):
    mesh = Mesh(speed=200)
    node = mesh.add()
    mesh.start()
    port = PtyPort(node, tmp_path / "by-id")
    port.node = node
    port.start()
    yield port
    port.stop()
    mesh.stop()


async def test_serial_port_outlives_its_clients(serial):
    for nonce in (1, 2):
        tty = Tty(serial.path)
        tty.tell(want_config_id=nonce)
        assert (await tty.until("config_complete_id")).config_complete_id == nonce
        tty.close()


async def test_reboot_of_a_uart_board_is_announced(serial):
    """§5.3: the port stays, a ``rebooted`` frame comes."""
    tty = Tty(serial.path)
    serial.node.reboot()
    assert (await tty.until("rebooted")).rebooted
    tty.close()


async def test_unplugging_ends_reading_and_the_name(serial, tmp_path):
    tty = Tty(serial.path)
    serial.unplug()
    with pytest.raises(OSError, match="Input/output"):
        os.write(tty.fd, b"x")
    assert not (tmp_path / "by-id").is_symlink()
    tty.close()
    serial.plug()
    again = Tty(serial.path)
    again.tell(want_config_id=3)
    assert (await again.until("config_complete_id")).config_complete_id == 3
    again.close()


async def test_native_usb_vanishes_while_booting(tmp_path):
    mesh = Mesh(speed=200)
    node = mesh.add()
    mesh.start()
    port = PtyPort(node, tmp_path / "acm", native_usb=True)
    port.start()
    node.reboot()
    assert not port.plugged
    async with asyncio.timeout(WITHIN_S):
        while not port.plugged:
            await asyncio.sleep(0.005)
    port.stop()
    mesh.stop()
