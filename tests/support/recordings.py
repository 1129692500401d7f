"""The recordings of a real node, as rows, and the facts a virtual copy of the scene needs."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path

from meshtastic.protobuf import mesh_pb2, telemetry_pb2

CAPTURES = Path(__file__).parent.parent / "radio" / "virtual" / "captures"
A, B, C = 0xA11CE001, 0xB0B00002, 0xCA201003
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in CAPTURES.glob("*.jsonl.gz"))
BROADCAST = 0xFFFFFFFF


@cache
def rows(name):
    """Every line of a recording."""
    with gzip.open(CAPTURES / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def from_radio(name, conn=None):
    """The node's frames as (t, conn, kind, FromRadio)."""
    return [
        (row["t"], row["conn"], row["kind"], mesh_pb2.FromRadio.FromString(bytes.fromhex(row["hex"])))
        for row in rows(name)
        if row["dir"] == "from_radio" and row["kind"] != "raw" and conn in {None, row["conn"]}
    ]


def users(name):
    """Node number -> User, from the database download."""
    return {f.node_info.num: f.node_info.user for _, _, kind, f in from_radio(name) if kind == "node_info"}


def started_at(name):
    """The node's clock when the first client connected, 0 when it had none, and its uptime then."""
    frames = from_radio(name)
    own = next(f.node_info for _, _, kind, f in frames if kind == "node_info")
    connected = next(t for t, _, kind, _ in frames if kind == "my_info")
    clock, uptime, queued = own.position.time, own.device_metrics.uptime_seconds + 1, False
    for t, _, kind, frame in frames:
        metrics = own_metrics(frame) if kind == "packet" else None
        if metrics is None:
            continue
        live = t - connected > 0.05
        if live:
            uptime = metrics.uptime_seconds - t
        elif clock:
            uptime = metrics.uptime_seconds + clock - frame.packet.rx_time - t
        queued = queued or not live
        if live:
            break
    return clock, uptime, queued


def own_metrics(frame):
    """DeviceMetrics of the node itself, if the frame is its telemetry."""
    packet = frame.packet
    if getattr(packet, "from") != A or packet.decoded.portnum != 67:
        return None
    telemetry = telemetry_pb2.Telemetry.FromString(packet.decoded.payload)
    return telemetry.device_metrics if telemetry.HasField("device_metrics") else None


def peer_sends(name):
    """What node b's user did, as (t, MeshPacket): from the notes, with the content as it arrived."""
    arrived = {f.packet.id: f.packet for _, _, kind, f in from_radio(name) if kind == "packet"}
    done = []
    for row in rows(name):
        found = re.search(r"node b sends: .*id=(\d+)$", row["msg"]) if row["dir"] == "note" else None
        if found:
            done.append((row["t"], _as_sent(arrived[int(found[1])], row["msg"])))
        elif row["dir"] == "note" and row["msg"] == "node b sends the same id again":
            done.append((row["t"], done[-1][1]))
    return done


def _as_sent(seen, note):
    packet = mesh_pb2.MeshPacket(to=seen.to, id=seen.id, hop_limit=0 if "hop_limit=0" in note else 3)
    packet.want_ack = seen.want_ack or "wantAck (for" in note
    if seen.encrypted:
        packet.decoded.portnum, packet.decoded.payload = 1, b"x" * (len(seen.encrypted) - 12 - 6)
    else:
        packet.decoded.CopyFrom(seen.decoded)
        packet.decoded.ClearField("bitfield")
    return packet
