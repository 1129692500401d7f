"""The stock library and its command line against the virtual node, and against the recorded one."""

import asyncio
import socket
import sys
import threading
from collections import Counter

import pytest
from meshtastic.protobuf import mesh_pb2
from meshtastic.serial_interface import SerialInterface
from meshtastic.stream_interface import StreamInterface
from meshtastic.tcp_interface import TCPInterface
from pubsub import pub
from support import recordings

from meshai.radio.virtual import Fate, PtyPort, default_mesh
from meshai.radio.virtual.stream import Deframer, framed


class Listener:
    """Collects what the library publishes for one interface."""

    def __init__(self):
        self.packets, self.topics, self.iface = [], Counter(), None
        pub.subscribe(self.on_receive, "meshtastic.receive")

    def on_receive(self, packet, interface, topic=pub.AUTO_TOPIC):
        self.packets.append(packet)
        self.topics[topic.getName()] += 1

    async def until(self, wanted):
        async with asyncio.timeout(10):
            while (found := next((p for p in self.packets if wanted(p)), None)) is None:
                await asyncio.sleep(0.005)
        return found


@pytest.fixture
def listener():
    found = Listener()
    yield found
    pub.unsubscribe(found.on_receive, "meshtastic.receive")


@pytest.fixture
def no_threads_left():
    before = set(threading.enumerate())
    yield
    started = [t for t in threading.enumerate() if t not in before and t.name != "publishing"]
    started = [t for t in started if not t.name.startswith("asyncio_")]
    for thread in started:
        thread.join(5)
    assert [t for t in started if t.is_alive()] == []


@pytest.fixture
async def virtual():
    mesh = default_mesh(speed=100, loss=0.0)
    await mesh.start()
    yield mesh
    await mesh.stop()


async def opened(make, *args, **kwargs):
    """A connected interface whose first heartbeat is out: closing sooner upsets the library (§9.15)."""
    iface = await asyncio.to_thread(make, *args, **kwargs)
    async with asyncio.timeout(10):
        while iface.heartbeatTimer is None or not iface.heartbeatTimer.is_alive():
            await asyncio.sleep(0.005)
    await asyncio.to_thread(iface.sendHeartbeat)
    return iface


@pytest.fixture(params=["tcp", "serial"])
async def iface(request, virtual, listener, no_threads_left):
    if request.param == "tcp":
        made = await opened(TCPInterface, virtual.bot_host, portNumber=virtual.bot_port)
        yield made
        await asyncio.to_thread(made.close)
        return
    port = PtyPort(virtual.bot)
    port.start()
    made = await opened(SerialInterface, port.path)
    yield made
    await asyncio.to_thread(made.close)
    port.stop()


def text_is(text):
    return lambda packet: packet.get("decoded", {}).get("text") == text


def acknowledged_by(num, request_id):
    return lambda p: p["from"] == num and p.get("decoded", {}).get("requestId") == request_id


async def test_library_sees_the_node_and_its_neighbours(virtual, iface):
    assert iface.myInfo.my_node_num == virtual.bot.num
    assert {n["user"]["longName"] for n in iface.nodes.values()} == {"MeshAI", "Hilltop relay", "Alice", "Bob"}
    assert iface.localNode.localConfig.lora.hop_limit == 3
    assert iface.metadata.firmware_version.startswith("2.7.26")


async def test_conversation_with_both_acknowledgements(virtual, iface, listener):
    """§3.3: a phone's question arrives by PKI; our answer gets the implicit and the real ACK."""
    alice = virtual.phones[0]
    question = await alice.send_dm(virtual.bot, "héllo 👋")
    packet = await listener.until(text_is("héllo 👋"))
    assert (packet["pkiEncrypted"], len(packet["publicKey"]), packet["hopStart"] - packet["hopLimit"]) == (True, 44, 1)
    assert (await alice.settled(question)).fate is Fate.ACKED

    sent = await asyncio.to_thread(iface.sendText, "answer", alice.num, True, replyId=packet["id"])
    await listener.until(acknowledged_by(virtual.bot.num, sent.id))
    await listener.until(acknowledged_by(alice.num, sent.id))
    answer = await alice.wait_for(lambda m: m.text == "answer")
    assert (answer.reply_id, answer.pki, answer.hops) == (question.packet_id, True, 1)


async def test_admin_calls_of_a_bot_work(virtual, iface):
    alice = virtual.phones[0].num
    await asyncio.to_thread(iface.localNode.setTime)
    await asyncio.to_thread(iface.localNode.setFavorite, alice)
    async with asyncio.timeout(10):
        while not (virtual.bot.clock() and virtual.bot.database.get(alice).favourite):
            await asyncio.sleep(0.005)


async def test_mail_waits_for_the_library(virtual, listener, no_threads_left):
    """§2.5"""
    alice = virtual.phones[0]
    sent = await alice.send_dm(virtual.bot, "are you there")
    assert (await alice.settled(sent)).fate is Fate.ACKED
    made = await opened(TCPInterface, virtual.bot_host, portNumber=virtual.bot_port)
    await listener.until(text_is("are you there"))
    await asyncio.to_thread(made.close)


async def test_official_command_line_shows_the_node(virtual):
    where = f"{virtual.bot_host}:{virtual.bot_port}"
    command = [sys.executable, "-m", "meshtastic", "--host", where, "--info"]
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-2)
    async with asyncio.timeout(40):
        shown, _ = await process.communicate()
    assert process.returncode == 0, shown.decode()
    assert b"Owner: MeshAI (AI)" in shown
    assert b"Hilltop relay" in shown


class Played(StreamInterface):
    """The stock stream interface on a socket whose other end plays a recording."""

    def __init__(self, sock):
        self._sock = sock
        super().__init__()

    def connect(self):
        self.stream = self._sock.makefile("rwb", buffering=0)
        super().connect()

    def _writeBytes(self, b):  # noqa: N802 - the library's name
        self._sock.sendall(b)  # the stock one waits 0.1 s after each write


def play(sock, frames):
    """Say what was recorded, with the client's nonce in its place; hang up when the client says goodbye."""
    deframer = Deframer()
    while data := sock.recv(4096):
        for message in map(mesh_pb2.ToRadio.FromString, deframer.feed(data)):
            if message.want_config_id:
                echo = mesh_pb2.FromRadio(config_complete_id=message.want_config_id)
                sock.sendall(b"".join(framed(echo if frame.config_complete_id else frame) for frame in frames))
            if message.disconnect:
                sock.shutdown(socket.SHUT_RDWR)
                return


@pytest.mark.parametrize("name", recordings.NAMES)
async def test_library_publishes_what_was_recorded(name, listener, no_threads_left):
    """The recorded firmware's side, fed to the real library: the events a bot would see."""
    frames = [frame for *_, frame in recordings.from_radio(name, conn=1)]
    packets = [frame.packet for frame in frames if frame.HasField("packet")]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        player = threading.Thread(target=play, args=(theirs, frames), daemon=True)
        player.start()
        iface = await opened(Played, ours)
        async with asyncio.timeout(10):
            while len(listener.packets) < len(packets):
                await asyncio.sleep(0.005)
        assert iface.myInfo.my_node_num == recordings.A
        assert [p["id"] for p in listener.packets] == [p.id for p in packets]
        assert listener.topics == Counter(topic(p) for p in packets)
        await asyncio.to_thread(iface.close)
        await asyncio.to_thread(player.join)


def topic(packet):
    """The topic the library publishes a packet on (protocol.md §2.1)."""
    kind = {1: "text", 4: "user", 5: "routing", 6: "admin", 67: "telemetry"}.get(packet.decoded.portnum)
    return "meshtastic.receive" if packet.encrypted else f"meshtastic.receive.{kind}"
