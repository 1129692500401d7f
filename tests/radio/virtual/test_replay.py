"""The recorded client talks to the virtual node, which must answer as the recorded firmware did (protocol.md §9)."""

import pytest
from google.protobuf.json_format import MessageToDict
from support import recordings
from support.replay import Scene

TIME_TOLERANCE_S = 1.6
"""Retransmission timers, telemetry and NodeInfo run on the recorded schedule; the stream is polled every 0.25 s."""

VALUE_DIFFERS = {
    "id": "packet ids of the node's own packets are random",
    "requestId": "of stray answers: ids the client never used are random (checked apart)",
    "meshPacketId": "of the node's own packets: random (checked apart)",
    "rxTime": "a second of difference in the poll; that it is there or not is compared",
    "time": "as rxTime",
    "lastHeard": "as rxTime",
    "encrypted": "random bytes; the length is that of the recorded text",
    "pioEnv": "names the build",
    "hwModel": "PORTDUINO is the recording's computer",
    "macaddr": "PORTDUINO's",
    "sizeBytes": "sizes of the files in the node's flash",
    "transportMechanism": "artefact: the recorded mesh went over UDP multicast",
    "deviceMetrics": "measured values",
    "privateKey": "redacted in the recording",
}
FIELD_DIFFERS = {
    "nextHop": "what the peer had learnt of the way before the recording is unknown (11, 13, 13b)",
    "free": "whether the last packet still waits for its slot depends on the random contention window",
    "excludedModules": "artefact: the recorded build left modules out",
    "lastHeard": "of peers: what was heard before the recording",
    "rebootCount": "the recorded build does not count",
}
CONFIG_OF_THE_RECORDED_BUILD = {
    "position": "GPS settings", "power": "power saving", "network": "network services", "bluetooth": "pairing",
    "mqtt": "broker defaults", "telemetry": "intervals", "ambientLighting": "LED", "detectionSensor": "sensor",
}  # fmt: skip
RECORDED_FILE = "/prefs/transmit_history.dat"
REPEATED_ID = 1719109785
FRAMES_NOT_EXPECTED = {
    "a file of the recorded build": lambda name, t, message: (
        message.get("fileInfo", {}).get("fileName") == RECORDED_FILE
    ),
    "the recorded build accepts a repeated id from its client, hardware ignores it": lambda name, t, message: (
        name == "17_local_admin" and t > 18.0 and str(REPEATED_ID) in str(message)
    ),
}


def recorded(name):
    frames = [(t, c, k, MessageToDict(f)) for t, c, k, f in recordings.from_radio(name)]
    return [
        frame for frame in frames if not any(known(name, frame[0], frame[3]) for known in FRAMES_NOT_EXPECTED.values())
    ]


def essence(message, ids, kind):
    """A frame without what may differ; presence stays."""
    if kind in {"config", "moduleConfig"}:
        return _config(message[kind])
    return _essence(message, ids)


def _config(section):
    name = next(iter(section), "")
    return {name: "…"} if name in CONFIG_OF_THE_RECORDED_BUILD else {name: _essence(section.get(name, {}), set())}


def _essence(message, ids):
    kept = {}
    for key, value in message.items():
        if key in FIELD_DIFFERS:
            continue
        if key in {"id", "requestId", "meshPacketId"} and value in ids:
            kept[key] = value
        elif key in VALUE_DIFFERS:
            kept[key] = "…"
        elif isinstance(value, dict):
            kept[key] = _essence(value, ids)
        else:
            kept[key] = value
    if kept.get("portnum") in {"TELEMETRY_APP", "NODEINFO_APP", "ADMIN_APP"} and "payload" in kept:
        kept["payload"] = "…"  # measured values, hardware, session key; the kinds are checked apart
    return kept


def known_ids(name):
    """Packet ids that the client or the peer's user drew."""
    found = {packet.id for _, packet in recordings.peer_sends(name)}
    for row in recordings.rows(name):
        if row["dir"] == "to_radio" and row["kind"] == "packet":
            found.add(row["msg"]["packet"]["id"])
    return found


@pytest.mark.parametrize("name", recordings.NAMES)
def test_node_answers_as_recorded(name):
    ids = known_ids(name)
    expected = recorded(name)
    scene = Scene(name)
    said = scene.play()
    shown = [(conn, kind, essence(message, ids, kind)) for _, conn, kind, message in said]
    assert shown == [(conn, kind, essence(message, ids, kind)) for _, conn, kind, message in expected]
    times = [(kind, t, said_at) for (t, _, kind, _), (said_at, *_) in zip(expected, said, strict=True)]
    assert [row for row in times if abs(row[1] - row[2]) > TIME_TOLERANCE_S] == []


def test_reboot_closes_the_connection_two_seconds_later():
    scene = Scene("11_reboot")
    scene.play()
    assert scene.closed == [1]
    assert scene.a.boots == 1


def test_repeated_id_from_the_client_is_ignored():
    """Hardware's rule, which the recorded build lacks."""
    said = Scene("17_local_admin").play()
    answers = [m["packet"]["decoded"].get("requestId") for _, _, kind, m in said if kind == "packet"]
    assert answers.count(REPEATED_ID) == 1


def test_every_exception_is_still_needed():
    frames = "".join(str(recordings.rows(name)) for name in recordings.NAMES) + str(Scene("11_reboot").play())
    for field in [*VALUE_DIFFERS, *FIELD_DIFFERS, *CONFIG_OF_THE_RECORDED_BUILD]:
        assert f"'{field}'" in frames, field
    for known in FRAMES_NOT_EXPECTED.values():
        assert any(
            known(name, t, MessageToDict(f)) for name in recordings.NAMES for t, _, _, f in recordings.from_radio(name)
        )
