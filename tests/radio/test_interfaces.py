"""The library's interface under bytes nobody should send: no exception, no print, no growth."""

import random
import threading

import pytest
from meshtastic import publishingThread
from meshtastic.protobuf import mesh_pb2, telemetry_pb2
from support.wire_node import FAST, OWN, PEER, Watcher, mail

from meshai.clock import SystemClock
from meshai.config.model import Connection
from meshai.radio import interfaces
from meshai.radio.library import keep_quiet
from meshai.radio.link import LinkState
from meshai.radio.registry import KINDS, open_link
from meshai.radio.session import subscribe


class Ears:
    """A listener that keeps what it hears."""

    def __init__(self):
        self.packets = []

    def on_established(self):
        pass

    def on_lost(self):
        pass

    def on_packet(self, packet):
        self.packets.append(packet)

    def on_notification(self, notification):
        pass


@pytest.fixture
def ears():
    subscribe()
    return Ears()


@pytest.fixture
def iface(ears):
    """An interface that never connects; frames are handed to it directly."""
    node = interfaces.TcpNode("127.0.0.1", 1, ears, FAST)
    node.nodes, node.nodesByNum, node._localChannels = {}, {}, []
    node.myInfo = mesh_pb2.MyNodeInfo(my_node_num=OWN)
    return node


def settle():
    """Wait until the library's publishing thread has published everything."""
    done = threading.Event()
    publishingThread.queueWork(done.set)
    assert done.wait(10)


def samples():
    """One frame of every kind that carries something from the mesh."""
    telemetry = mesh_pb2.FromRadio()
    setattr(telemetry.packet, "from", PEER)
    metrics = telemetry_pb2.Telemetry(device_metrics=telemetry_pb2.DeviceMetrics(channel_utilization=5.0))
    telemetry.packet.decoded.CopyFrom(mesh_pb2.Data(portnum=67, payload=metrics.SerializeToString()))
    user = mesh_pb2.User(id="!b0b00002", long_name="Bravo", public_key=bytes(32))
    info = mesh_pb2.FromRadio(node_info={"num": PEER, "user": user})
    named = mesh_pb2.FromRadio()
    setattr(named.packet, "from", PEER)
    named.packet.decoded.CopyFrom(mesh_pb2.Data(portnum=4, payload=user.SerializeToString()))
    return [
        mail("héllo", 7, reply_id=3, emoji=1, bitfield=1),
        telemetry,
        info,
        named,
        mesh_pb2.FromRadio(queueStatus={"free": 3, "mesh_packet_id": 7}),
        mesh_pb2.FromRadio(clientNotification={"message": "You can send again in 5 mins", "reply_id": 9}),
        mesh_pb2.FromRadio(metadata={"firmware_version": "2.7.26"}),
        mesh_pb2.FromRadio(channel={"index": 1, "role": "SECONDARY"}),
        mesh_pb2.FromRadio(config={"lora": {"use_preset": True, "hop_limit": 3}}),
    ]


def mutated(rng, frame):
    """Flip, cut, double or insert bytes."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data)) if data else 0
        match rng.randrange(4):
            case 0 if data:
                data[place] = rng.randrange(256)
            case 1:
                del data[place:]
            case 2:
                data[place:place] = rng.randbytes(rng.randint(1, 5))
            case _:
                data += data[place : place + 20]
    return bytes(data[:512])


def test_mutated_frames_harm_nothing(iface, ears, monkeypatch, capfd):
    monkeypatch.setattr(interfaces, "MAX_NODES", 50)
    rng = random.Random(20261121)
    frames = [frame.SerializeToString() for frame in samples()]
    for _ in range(3000):
        iface._handleFromRadio(mutated(rng, rng.choice(frames)))
    iface._handleFromRadio(mail("still here", 8).SerializeToString())
    settle()
    assert iface.bad_frames > 100
    assert ears.packets[-1]["decoded"]["text"] == "still here"
    assert max(len(iface.nodesByNum), len(iface.nodes)) <= 50
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "")


def test_forged_senders_do_not_grow_the_node_list(iface, monkeypatch):
    monkeypatch.setattr(interfaces, "MAX_NODES", 100)
    iface._getOrCreateByNum(OWN)
    for number in range(1000):
        iface._handleFromRadio(mail("x", number + 1, sender=0x1000 + number).SerializeToString())
    assert len(iface.nodesByNum) <= 100
    assert OWN in iface.nodesByNum
    assert 0x1000 + 999 in iface.nodesByNum


def test_impossible_port_makes_no_topic(iface, ears):
    frame = mail("x", 5)
    frame.packet.decoded.portnum = 100_000
    iface._handleFromRadio(frame.SerializeToString())
    settle()
    assert ears.packets == []


def test_text_that_is_not_utf8_writes_no_error(iface, ears, caplog):
    """Strangers must not be able to fill the operator's log."""
    frame = mail("x", 5)
    frame.packet.decoded.payload = b"\xff"
    keep_quiet()
    iface._handleFromRadio(frame.SerializeToString())
    settle()
    assert len(ears.packets) == 1
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


def test_own_packet_that_comes_back_is_not_printed(iface, ears, capsys):
    iface._handleFromRadio(mail("x", 5, sender=0).SerializeToString())
    settle()
    assert (ears.packets, capsys.readouterr().out) == ([], "")


def test_unknown_queue_reports_are_not_collected(iface):
    for number in range(100):
        iface._handleFromRadio(mesh_pb2.FromRadio(queueStatus={"mesh_packet_id": number}).SerializeToString())
    assert len(iface.queue) == 0
    assert iface.queueStatus.mesh_packet_id == 99


def test_events_of_other_interfaces_are_left_alone(ears):
    """§2.1: pubsub's topics are global to the process."""
    from pubsub import pub

    subscribe()
    pub.sendMessage("meshtastic.receive", packet={}, interface=object())
    assert ears.packets == []


def test_every_kind_of_connection_has_a_link():
    assert sorted(KINDS) == ["ble", "serial", "tcp"]


async def test_bluetooth_failure_is_one_more_reason_to_retry(monkeypatch):
    from meshtastic.ble_interface import BLEInterface

    def absent(*_):
        raise BLEInterface.BLEError("No Meshtastic BLE peripheral found")

    monkeypatch.setattr(BLEInterface, "find_device", absent)
    before = set(threading.enumerate())
    link, watcher = open_link(Connection(type="ble", ble_address="AA:BB"), SystemClock(), FAST), Watcher()
    await link.start(watcher)
    change = await watcher.change(LinkState.DOWN)
    await link.stop()
    assert "No Meshtastic BLE peripheral" in change.reason
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name in {"BLEReceive", "radio sender"}]


async def test_serial_auto_explains_an_empty_bus(monkeypatch):
    monkeypatch.setattr("meshai.radio.discover.list_ports", list)
    link, watcher = open_link(Connection(type="serial"), SystemClock(), FAST), Watcher()
    await link.start(watcher)
    change = await watcher.change(LinkState.DOWN)
    await link.stop()
    assert change.reason == "no Meshtastic node found on USB"
