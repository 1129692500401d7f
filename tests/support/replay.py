"""The recorded client, played against a virtual copy of the recorded scene."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict
from meshtastic.protobuf import mesh_pb2
from support import recordings
from support.recordings import A, B, C

from meshai.radio.virtual.frame import Link
from meshai.radio.virtual.mesh import Mesh
from meshai.radio.virtual.phone import Phone
from meshai.radio.virtual.settings import NodeSettings
from meshai.radio.virtual.stream import START, Deframer, Session
from meshai.radio.virtual.timeline import Timeline

NODEINFO_AFTER_S = 30.0
SCRIPTS = {
    "03b_dm_out_third_node_rebroadcasts": [
        (26.146 - NODEINFO_AFTER_S, lambda s: s.c.switch_on()),
        (20.726, lambda s: s.b.switch_off()),
    ],
    "07_peer_off_max_retransmit": [(2.728, lambda s: s.b.switch_off())],
    "11_reboot": [(0.0, lambda s: setattr(s.a, "boot_s", 0.04))],
    "13_peer_lost_our_key": [
        (-0.5, lambda s: (s.b.switch_off(), s.b.database.clear())),
        (3.738, lambda s: s.b.switch_on()),
    ],
    "13b_peer_rekeyed": [
        (-0.5, lambda s: (s.b.switch_off(), s.b.rekey())),
        (31.14 - NODEINFO_AFTER_S, lambda s: s.b.switch_on()),
    ],
    "14_telemetry_and_nodeinfo": [
        (-20.0, lambda s: s.b.switch_off()),
        (12.638 - NODEINFO_AFTER_S, lambda s: s.b.switch_on()),
        (99.727, lambda s: s.b.switch_off()),
        (101.742, lambda s: s.b.switch_on()),
    ],
}
"""What happened beside the client, as the notes of the recordings tell."""


class Scene:
    """Nodes a, b and c in the state the recording found them in, and one session for each recorded connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[tuple[float, int, str, dict]] = []
        self.closed: list[int] = []
        self.mesh = Mesh(seed=3, timeline=Timeline(), udp=True)
        self._sessions: dict[int, Session] = {}
        self._people()
        self.clock, self._uptime, self._queued = recordings.started_at(name)

    def play(self) -> list[tuple[float, int, str, dict]]:
        """Everything the virtual node said, as (t, connection, kind, dict)."""
        for t, action in sorted(self._actions(), key=lambda item: item[0]):
            self._until(t)
            action()
        self._until(self._now() + 0.3)
        return self.heard

    def _people(self) -> None:
        users = recordings.users(self.name)
        present = [A, B] + ([C] if C in users or self.name.startswith("03b") else [])
        for num in present:
            user = users.get(num, mesh_pb2.User(long_name="User Charlie", short_name="USRC", public_key=b"c" * 32))
            settings = NodeSettings(long_name=user.long_name, short_name=user.short_name)
            self.mesh.add(settings, num=num, key=user.public_key)
        self.a, self.b, self.c = (self.mesh.nodes.get(num) for num in (A, B, C))
        quiet = Link(snr=0.0, rssi=0)
        self.mesh.link(self.a, self.b, quiet)
        if self.c is not None:
            self.c.switch_off()
            self.mesh.link(self.a, self.c, quiet)
        self.mesh.introduce(self.a, self.b)
        if self.c is not None:
            self.c.meet(self.a)
            if C in users:
                self.a.meet(self.c)
        if not self.name.startswith("13"):  # there the way was lost before: a rebooted, or b had not answered
            self.a.database.get(B).next_hop, self.b.database.get(A).next_hop = B & 0xFF, A & 0xFF
        for known in self.a.database.all():
            known.hops_away = 0

    def _actions(self):
        for t, action in SCRIPTS.get(self.name, []):
            yield t, lambda action=action: action(self)
        for t, packet in recordings.peer_sends(self.name):
            yield t, lambda packet=packet: self.b.send(_copy(packet))
        yield -1000.0, self._before
        for row in recordings.rows(self.name):
            if row["dir"] == "to_radio":
                yield row["t"], lambda row=row: self._feed(row)
            elif row["dir"] == "tcp" and row["kind"] == "open":
                yield row["t"], lambda row=row: self._open(row["conn"])
            elif row["dir"] == "tcp" and row["kind"] == "eof_by_client":
                yield row["t"], lambda row=row: self._sessions[row["conn"]].end()

    def _before(self) -> None:
        """Let the node grow as old as it was; its phone reads everything but what was found waiting."""
        self._origin = self._uptime
        early = min([t for t, _ in SCRIPTS.get(self.name, [])] + [0.0])
        self._drain = Phone(self.a)
        last_tick = self._uptime - (self._uptime - 15) % 60
        if self.clock:
            self.a.set_clock(self.clock - self._uptime)
        if self._queued:
            self.mesh.timeline.advance(last_tick - 0.01)
            self._drain.close()
        self.mesh.timeline.advance(self._uptime + early - self.mesh.timeline.now())
        self.a.on_power(self._power)

    def _power(self, on: bool) -> None:
        if not on:
            self.a.to_phone.clear()
            for conn, session in self._sessions.items():
                session.end()
                self.closed.append(conn)

    def _now(self) -> float:
        return self.mesh.timeline.now() - self._origin

    def _until(self, t: float) -> None:
        if t > -1000.0:
            self.mesh.timeline.advance(max(0.0, t - self._now()))

    def _open(self, conn: int) -> None:
        self._drain.close()
        for session in self._sessions.values():
            session.end()
        deframer = Deframer()

        def write(data: bytes) -> None:
            for body in deframer.feed(data):
                message = mesh_pb2.FromRadio.FromString(body)
                kind = message.WhichOneof("payload_variant")
                self.heard.append((self._now(), conn, kind, MessageToDict(message)))

        self._sessions[conn] = Session(self.a, write, lambda: self.closed.append(conn))

    def _feed(self, row: dict) -> None:
        data = bytes.fromhex(row["hex"])
        if row["kind"] != "raw":
            data = START + len(data).to_bytes(2, "big") + data
        self._sessions[row["conn"]].feed(data)


def _copy(packet):
    copy = mesh_pb2.MeshPacket()
    copy.CopyFrom(packet)
    return copy
