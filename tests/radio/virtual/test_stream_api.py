"""The client API on a stream: framing, limits, the queue for an absent client. Time is moved by hand."""

import pytest
from meshtastic.protobuf import admin_pb2, mesh_pb2

from meshai.radio.virtual import Mesh, NodeSettings, Phone, Timeline, packets
from meshai.radio.virtual.stream import Deframer, Manners, Session, framed


class Desk:
    """A client at node a, whose neighbour b has a phone."""

    def __init__(self, **settings):
        self.mesh = Mesh(timeline=Timeline())
        self.a = self.mesh.add(NodeSettings(**settings), num=0xA1)
        self.b = self.mesh.add(num=0xB2)
        self.mesh.link(self.a, self.b)
        self.mesh.introduce()
        self.phone = Phone(self.b)
        self.connect()

    def connect(self, manners=None, nonce=7):
        self.said, self._deframer = [], Deframer()
        self.session = Session(self.a, self._hear, self._hang_up, manners)
        if nonce:
            self.tell(want_config_id=nonce)
        return self.take()

    def _hang_up(self):
        self.session.end()

    def _hear(self, data):
        self.said += [mesh_pb2.FromRadio.FromString(body) for body in self._deframer.feed(data)]

    def tell(self, **fields):
        self.session.feed(framed(mesh_pb2.ToRadio(**fields)))

    def send(self, text="hi", *, wait=1.0, **fields):
        packet = packets.text(self.b.num, text)
        packet.id = fields.pop("packet_id", 0) or self.a.new_id()
        for name, value in fields.items():
            setattr(packet, name, value)
        self.tell(packet=packet)
        return self.take(wait)

    def take(self, wait=1.0):
        """What the node says within ``wait`` seconds, as (kind, message)."""
        self.mesh.timeline.advance(wait)
        said, self.said = self.said, []
        return [(kind := m.WhichOneof("payload_variant"), getattr(m, kind)) for m in said]

    def admin(self, **fields):
        body = admin_pb2.AdminMessage(**fields).SerializeToString()
        decoded = packets.data(6, body, want_response=True)
        self.tell(packet=mesh_pb2.MeshPacket(to=self.a.num, id=self.a.new_id(), want_ack=True, decoded=decoded))
        return self.take()


@pytest.fixture
def desk():
    return Desk()


def states(said):
    return [(m.res, m.free > 0) for kind, m in said if kind == "queueStatus"]


def named(packet_id, said):
    return [m for kind, m in said if kind == "queueStatus" and m.mesh_packet_id == packet_id]


def errors(said):
    return [packets.routing_error(m.decoded) for kind, m in said if kind == "packet" and m.decoded.portnum == 5]


def texts(said):
    return [m.decoded.payload.decode() for kind, m in said if kind == "packet" and m.decoded.portnum == 1]


def test_deframer_survives_garbage_and_splits():
    frame = framed(mesh_pb2.ToRadio(want_config_id=5))
    stream = b"\xc3" * 32 + b"log line\n\x94" + frame + b"\x94\xc3\xff\xff" + frame[:3]
    deframer, found = Deframer(), []
    for index in range(0, len(stream), 5):
        found += deframer.feed(stream[index : index + 5])
    found += deframer.feed(frame[3:])
    assert found == [frame[4:], frame[4:]]


def test_malformed_frame_is_ignored(desk):
    desk.session.feed(b"\x94\xc3\x00\x04\xff\xff\xff\xff")
    desk.tell(heartbeat={})
    assert states(desk.take()) == [(0, True)]


@pytest.mark.parametrize(("nonce", "kinds"), [(69421, {"node_info", "config_complete_id"}), (69420, None)])
def test_partial_downloads(desk, nonce, kinds):
    said = [kind for kind, _ in desk.connect(nonce=nonce)]
    assert said.count("node_info") == (2 if kinds else 1)
    assert kinds is None or set(said) == kinds


def test_nothing_is_said_before_the_client_asks(desk):
    assert desk.connect(nonce=0) == []


def test_second_text_within_two_seconds_vanishes(desk):
    """§3.5: queueStatus says sent; the window is not restarted by the refused one."""
    desk.send("one", wait=0.9)
    assert states(desk.send("two", wait=1.2)) == [(0, True)]
    desk.send("three", wait=10)
    assert [m.text for m in desk.phone.received] == ["one", "three"]


def test_refusal_reaches_a_client_that_names_itself(desk):
    desk.send("one", wait=0.5)
    packet = packets.text(desk.b.num, "two")
    packet.id = 99
    setattr(packet, "from", desk.a.num)
    desk.tell(packet=packet)
    assert 38 in errors(desk.take(0.1))


def test_repeated_id_is_forgotten_with_the_connection(desk):
    """DESIGN §3: over TCP the mesh's duplicate filter is what keeps it from arriving twice."""
    desk.send("same", packet_id=5, wait=20)
    assert not named(5, desk.send("same", packet_id=5, wait=20))
    desk.session.end()
    desk.connect()
    assert errors(desk.send("same", packet_id=5, wait=20)) == [0]
    assert len(desk.phone.received) == 1


def test_serial_port_remembers_ids_over_clients(desk):
    manners = Manners()
    desk.connect(manners)
    desk.send("same", packet_id=5, wait=20)
    desk.session.end()
    desk.connect(manners)
    assert not named(5, desk.send("same", packet_id=5, wait=20))


def test_twenty_other_packets_make_an_id_new_again(desk):
    desk.send("same", packet_id=5, wait=3)
    for number in range(20):
        desk.send(str(number), wait=3)
    assert states(desk.send("same", packet_id=5)) == [(0, True)]


def test_oversized_payload_gets_no_answer(desk):
    """§1: nanopb refuses it, silence."""
    assert [kind for kind, _ in desk.send("x" * 234)] == []


@pytest.mark.parametrize("capacity", [8, 16, 32])
def test_queue_for_an_absent_client_displaces_the_oldest(capacity):
    """§2.5: texts push out the oldest, acknowledgements and the rest are dropped."""
    desk = Desk(to_phone=capacity)
    desk.session.end()
    for number in range(40):
        desk.b.send(packets.text(desk.a.num, f"text {number}", want_ack=False))
        desk.mesh.timeline.advance(5)
    desk.b.modules.send_nodeinfo(at_once=True)
    desk.mesh.timeline.advance(5)
    said = desk.connect()
    assert texts(said) == [f"text {number}" for number in range(40 - capacity, 40)]
    assert said.index(next(item for item in said if item[0] == "packet")) > [kind for kind, _ in said].index(
        "config_complete_id"
    )


def test_queue_is_emptied_by_reading_and_by_reboot(desk):
    desk.session.end()
    desk.b.send(packets.text(desk.a.num, "waiting"))
    desk.mesh.timeline.advance(10)
    assert texts(desk.connect()) == ["waiting"]
    desk.session.end()
    assert texts(desk.connect()) == []
    desk.session.end()
    desk.b.send(packets.text(desk.a.num, "lost at reboot"))
    desk.mesh.timeline.advance(10)
    desk.a.reboot()
    desk.mesh.timeline.advance(10)
    assert texts(desk.connect()) == []


def test_node_without_a_radio_has_no_room(desk):
    """§3.6: free 0 for ever."""
    desk.a.radio.has_radio = False
    said = desk.send("nowhere")
    assert (states(said), errors(said)) == ([(4, False)], [4])
    desk.a.radio.has_radio, desk.a.free_zero = True, True
    desk.tell(heartbeat={})
    assert states(desk.take()) == [(0, False)]


def test_favourite_is_not_evicted():
    """§6: a full database forgets who was not heard for long, favourites never."""
    desk = Desk(database=10)
    desk.admin(set_favorite_node=desk.b.num)
    desk.a.know_strangers(30)
    assert (desk.a.database.get(desk.b.num).favourite, len(desk.a.database)) == (True, 9)
    desk.admin(remove_favorite_node=desk.b.num)
    desk.a.know_strangers(40)
    assert desk.b.num not in desk.a.database


def test_removed_node_is_forgotten_with_its_key(desk):
    desk.admin(remove_by_nodenum=desk.b.num)
    assert [m.num for kind, m in desk.connect() if kind == "node_info"] == [desk.a.num]
    assert errors(desk.send())[:1] == [39]


def test_clock_is_absent_until_set(desk):
    """§9.13"""
    assert desk.admin(get_device_metadata_request=True)[-1][1].rx_time == 0
    desk.admin(set_time_only=1_795_000_000)
    said = desk.admin(get_owner_request=True)
    assert said[-1][1].rx_time == pytest.approx(1_795_000_001, abs=2)
    desk.a.reboot()
    desk.mesh.timeline.advance(10)
    assert desk.a.clock() == 0


def test_admin_changes_show_in_the_next_download(desk):
    owner = mesh_pb2.User(long_name="New name", short_name="NEW")
    desk.admin(set_owner=owner)
    desk.admin(set_channel={"index": 1, "settings": {"name": "bot", "psk": b"k" * 16}, "role": "SECONDARY"})
    desk.admin(
        set_config={"lora": {"modem_preset": "SHORT_FAST", "region": "EU_868", "hop_limit": 5, "tx_enabled": True}}
    )
    said = desk.connect()
    assert next(m for kind, m in said if kind == "node_info").user.long_name == "New name"
    assert [m.settings.name for kind, m in said if kind == "channel"][:2] == ["", "bot"]
    lora = next(m.lora for kind, m in said if kind == "config" and m.HasField("lora"))
    assert (lora.region, lora.hop_limit, lora.spread_factor) == (3, 5, 7)


def test_unknown_admin_is_refused(desk):
    assert errors(desk.admin(factory_reset_device=1)) == [32]


def test_silent_client_is_given_up_after_fifteen_minutes(desk):
    desk.take(800)
    desk.tell(heartbeat={})
    assert states(desk.take(890)) == [(0, True)]
    desk.take(20)
    desk.b.send(packets.text(desk.a.num, "kept"))
    assert desk.take(10) == []
    assert texts(desk.connect()) == ["kept"]


def test_own_telemetry_comes_each_minute(desk):
    """§9.1"""
    desk.take(75)
    said = desk.take(180)
    assert sum(kind == "packet" and m.decoded.portnum == 67 for kind, m in said) == 3


def test_rate_limited_ports_are_dropped_too(desk):
    """§3.5: positions 10 s apart."""
    packet = mesh_pb2.MeshPacket(to=desk.b.num, decoded=packets.data(3, b"\x0d\x01\x00\x00\x00"))
    sent = desk.a.radio.frames_sent
    for packet_id in (1, 2):
        packet.id = packet_id
        desk.tell(packet=packet)
        desk.take(4)
    assert desk.a.radio.frames_sent == sent + 1


def test_old_firmware_has_no_text_limit_and_ignores_heartbeats():
    desk = Desk(firmware="2.6.11.60ec05e")
    desk.send("one", wait=0.5)
    desk.send("two", wait=20)
    assert [m.text for m in desk.phone.received] == ["one", "two"]
    desk.tell(heartbeat={})
    assert desk.take() == []
