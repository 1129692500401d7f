"""Recorded FromRadio frames, bent at random: most still parse, so that the damage reaches the program's own code.

A seed gives the same frames. Every mutation works on decoded protobuf fields and on decoded payloads; one frame in
ten is then damaged as bytes.
"""

import random

from meshtastic.protobuf import admin_pb2, mesh_pb2, telemetry_pb2
from support.recordings import NAMES, A, B, C, from_radio

BROADCAST = 0xFFFFFFFF
NUMBERS = (0, 1, 2, 7, 8, 127, 255, 256, 1000, 65535, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
NODES = (0, 1, A, A, A, B, B, C, BROADCAST)
TEXTS = (
    "", " ", "hello", "!", "!!", "!more", "!again 99", "!stop", "!reset", "!admin pause", "!forget all", "!recall %s{}",
    "@ai hi", "👍", "\x00", "\x1b[2J", "a\u202eb", "\ufeff", "👨‍👩‍👧" * 8, "x" * 233, "'; DROP TABLE messages; --",
    "[1/3] part", "NaN", "<|endoftext|>", "é" * 116, "@ai !status", "!ADMIN BLOCK !b0b00002",
)  # fmt: skip
PORTS = (0, 1, 1, 1, 1, 3, 4, 5, 5, 6, 7, 8, 64, 65, 66, 67, 70, 71, 73, 256, 511, 512, 2**31 - 1)
INNER = {
    4: mesh_pb2.User,
    5: mesh_pb2.Routing,
    6: admin_pb2.AdminMessage,
    67: telemetry_pb2.Telemetry,
    3: mesh_pb2.Position,
}
KEY = bytes(range(32))


def recorded():
    """Every frame of every recording."""
    return [frame for name in NAMES for *_, frame in from_radio(name)]


class Mutator:
    """``next()`` is the bytes of one more frame."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        frames = recorded()
        self.packets = [f for f in frames if f.HasField("packet")]
        self.texts = [f for f in self.packets if f.packet.decoded.portnum == 1]
        self.others = [f for f in frames if not f.HasField("packet")]

    def next(self):
        rng = self.rng
        frame = mesh_pb2.FromRadio()
        pool = rng.choices((self.texts, self.packets, self.others), (5, 4, 2))[0]
        frame.CopyFrom(rng.choice(pool))
        if frame.HasField("packet"):
            self._packet(frame.packet)
        for _ in range(rng.randrange(3)):
            self._field(frame.packet if frame.HasField("packet") and rng.random() < 0.9 else frame)
        data = frame.SerializeToString()
        return self._damage(data) if rng.random() < 0.1 else data

    def _packet(self, packet):
        """What matters to a bot is bent more often than the rest."""
        rng = self.rng
        packet.id = rng.choice(NUMBERS) if rng.random() < 0.1 else rng.randrange(1, 2**32)
        if rng.random() < 0.5:
            setattr(packet, "from", rng.choice(NODES) if rng.random() < 0.9 else rng.randrange(2**32))
        if rng.random() < 0.3:
            packet.to = rng.choice(NODES)
        if packet.HasField("decoded"):
            self._decoded(packet.decoded)
        if rng.random() < 0.3:
            packet.pki_encrypted = rng.random() < 0.7
            packet.public_key = rng.choice((b"", KEY, KEY[:31], rng.randbytes(32), rng.randbytes(64)))
        if rng.random() < 0.05:
            packet.encrypted = rng.randbytes(rng.randrange(64))  # displaces ``decoded``

    def _decoded(self, decoded):
        rng = self.rng
        if rng.random() < 0.15:
            decoded.portnum = rng.choice(PORTS)
        if decoded.portnum == 1 and rng.random() < 0.7:
            decoded.payload = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
        elif decoded.portnum in INNER and rng.random() < 0.7:
            inner = INNER[decoded.portnum]()
            try:
                inner.ParseFromString(decoded.payload)
            except Exception:  # noqa: BLE001 - the payload belongs to another port, or was cut before
                inner.Clear()
            for _ in range(rng.randrange(1, 4)):
                self._field(inner)
            decoded.payload = inner.SerializeToString()
        if rng.random() < 0.2:
            decoded.payload = self._damage(decoded.payload)
        if rng.random() < 0.2:
            decoded.emoji = rng.choice(NUMBERS)
        if rng.random() < 0.3:
            decoded.reply_id = rng.choice(NUMBERS)
        if rng.random() < 0.3:
            decoded.request_id = rng.choice((*NUMBERS, 1000, 1001, 1002, 1003))

    def _field(self, message, depth=0):
        """Bend one field, at a random depth."""
        rng = self.rng
        if not message.DESCRIPTOR.fields:
            return
        field = rng.choice(message.DESCRIPTOR.fields)
        repeated = getattr(field, "is_repeated", None)
        if repeated is None:
            repeated = field.label == field.LABEL_REPEATED
        if rng.random() < 0.1 or repeated:
            message.ClearField(field.name)
        elif field.message_type is not None:
            present = [f for f, _ in message.ListFields() if f.message_type is not None and f.name == field.name]
            if depth < 5 and (present or rng.random() < 0.3):
                self._field(getattr(message, field.name), depth + 1)
        else:
            setattr(message, field.name, self._value(field, getattr(message, field.name)))

    def _value(self, field, old):
        rng = self.rng
        if field.cpp_type == field.CPPTYPE_BOOL:
            return not old
        if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
            return rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), float("-inf")))
        if field.cpp_type == field.CPPTYPE_ENUM:
            return rng.choice((0, 1, 5, 9, 34, 38, 99, 2**31 - 1))
        if field.type == field.TYPE_STRING:
            return rng.choice(TEXTS)
        if field.type == field.TYPE_BYTES:
            return rng.randbytes(rng.choice((0, 1, 31, 32, 33, 200)))
        limit = {field.CPPTYPE_INT32: 31, field.CPPTYPE_UINT32: 32, field.CPPTYPE_INT64: 63}.get(field.cpp_type, 64)
        return rng.choice(NUMBERS) % 2**limit

    def _damage(self, data):
        rng, bent = self.rng, bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            if not bent:
                return rng.randbytes(4)
            at = rng.randrange(len(bent))
            match rng.randrange(4):
                case 0:
                    bent[at] ^= 1 << rng.randrange(8)
                case 1:
                    del bent[at:]
                case 2:
                    bent[at:at] = rng.randbytes(rng.randrange(1, 5))
                case _:
                    bent[at] = rng.choice((0, 0x7F, 0x80, 0xFF))
        return bytes(bent)
