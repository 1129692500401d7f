"""Whatever a client writes, the virtual node goes on: its own faults must never look like the daemon's."""

import random

from meshtastic.protobuf import mesh_pb2
from support import recordings

from meshai.radio.virtual import Mesh, Phone, Timeline
from meshai.radio.virtual.stream import Session, framed

ROUNDS = 4000


def client_frames():
    found = []
    for name in recordings.NAMES:
        found += [bytes.fromhex(row["hex"]) for row in recordings.rows(name) if row["dir"] == "to_radio" and row["msg"]]
    return found


def mutated(rng, body):
    """A few bytes changed, cut out or put in."""
    body = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body) + 1)
        body[at : at + rng.choice([0, 1, 1, 3])] = rng.randbytes(rng.choice([0, 1, 1, 2]))
    return bytes(body)


def test_node_survives_mutated_clients():
    rng, frames = random.Random(4), client_frames()
    mesh = Mesh(timeline=Timeline())
    a, b = mesh.add(num=recordings.A), mesh.add(num=recordings.B)
    mesh.link(a, b)
    mesh.introduce()
    Phone(b)
    said = []
    session = Session(a, said.append, lambda: None)
    for _ in range(ROUNDS):
        body = mutated(rng, rng.choice(frames))
        session.feed(b"\x94\xc3" + len(body).to_bytes(2, "big") + body)
        mesh.timeline.advance(2.5)
    said.clear()
    a.switch_on()  # one of the mutants may have ordered a reboot
    session = Session(a, said.append, lambda: None)
    session.feed(b"\x94\xc3\x94" + b"\xc3" * 600)  # ends whatever the stream was left in
    session.feed(framed(mesh_pb2.ToRadio(want_config_id=7)))
    mesh.timeline.advance(1)
    assert framed(mesh_pb2.FromRadio(config_complete_id=7)) in said
