"""The own node and its peers, read from whatever the library has."""

from types import SimpleNamespace as Thing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshtastic.protobuf import channel_pb2, config_pb2, localonly_pb2, mesh_pb2

from meshai.radio.link import NodeInfo, Telemetry
from meshai.radio.nodeinfo import DEFAULT_KEY, read_node, read_peer, read_telemetry, version_numbers

OWN, PEER = 0xA11CE001, 0xB0B00002


def interface(*, lora=None, channels=(), user=None, **more):
    config = localonly_pb2.LocalConfig()
    config.lora.CopyFrom(config_pb2.Config.LoRaConfig(**(lora or {"use_preset": True, "hop_limit": 3})))
    return Thing(
        myInfo=mesh_pb2.MyNodeInfo(my_node_num=OWN),
        metadata=mesh_pb2.DeviceMetadata(firmware_version="2.7.26.54e0d8d"),
        localNode=Thing(localConfig=config, channels=list(channels)),
        nodesByNum={OWN: {"num": OWN, "user": user or {"longName": "Bot", "shortName": "B"}}},
        **more,
    )


def channel(role, **settings):
    return channel_pb2.Channel(role=role, settings=channel_pb2.ChannelSettings(**settings))


def test_node_of_a_usual_interface():
    node = read_node(interface(lora={"use_preset": True, "region": "EU_868", "hop_limit": 5}))
    assert (node.id, node.long_name, node.firmware) == ("!a11ce001", "Bot", "2.7.26.54e0d8d")
    assert (node.region, node.preset, node.hop_limit, node.nodes_known) == ("EU_868", "LONG_FAST", 5, 1)
    assert (node.bandwidth_khz, node.spreading_factor, node.coding_rate) == (250.0, 11, 5)


def test_preset_decides_the_modulation():
    node = read_node(interface(lora={"use_preset": True, "modem_preset": "LONG_MODERATE", "bandwidth": 250}))
    assert (node.bandwidth_khz, node.spreading_factor, node.coding_rate) == (125.0, 11, 8)


def test_own_modulation_without_preset():
    lora = {"use_preset": False, "bandwidth": 62, "spread_factor": 9, "coding_rate": 7}
    node = read_node(interface(lora=lora))
    assert (node.preset, node.bandwidth_khz, node.spreading_factor, node.coding_rate) == ("CUSTOM", 62.5, 9, 7)


def test_wide_band_radio_is_wider():
    node = read_node(interface(lora={"use_preset": True, "region": "LORA_24"}))
    assert node.bandwidth_khz == 812.5


def test_preset_newer_than_the_library_uses_the_numbers_beside_it():
    node = read_node(interface(lora={"use_preset": True, "modem_preset": 99, "bandwidth": 500, "spread_factor": 9}))
    assert (node.preset, node.bandwidth_khz, node.spreading_factor) == ("99", 500.0, 9)


def test_hop_limit_that_never_arrived_is_the_default():
    assert read_node(interface(lora={"use_preset": True})).hop_limit == 3


def test_ham_mode_is_seen():
    assert read_node(interface(user={"longName": "Bot", "isLicensed": True})).licensed


def test_channels_have_names_and_only_those_in_use():
    found = read_node(
        interface(channels=[channel("PRIMARY", psk=b"\x01"), channel("SECONDARY", name="bot"), channel("DISABLED")])
    ).channels
    assert [(each.name, each.is_primary) for each in found] == [("LongFast", True), ("bot", False)]


@pytest.mark.parametrize(
    ("psk", "public"),
    [(b"", True), (b"\x01", True), (b"\x07", True), (DEFAULT_KEY, True), (b"k" * 16, False), (b"k" * 32, False)],
)
def test_default_key_of_the_primary_is_recognised(psk, public):
    assert read_node(interface(channels=[channel("PRIMARY", psk=psk)])).channels[0].has_default_key is public


def test_secondary_without_key_shares_the_primary_key():
    channels = [channel("PRIMARY", psk=b"k" * 32), channel("SECONDARY", name="bot")]
    assert not read_node(interface(channels=channels)).channels[1].has_default_key


def test_name_made_up_by_the_library_is_no_name():
    """For each number heard it files "Meshtastic 0002"; only NodeInfo is an introduction."""
    user = {"id": "!b0b00002", "longName": "Meshtastic 0002", "shortName": "0002", "hwModel": "UNSET"}
    assert read_peer({PEER: {"num": PEER, "user": user}}, PEER).long_name == ""
    assert read_peer({PEER: {"num": PEER, "user": user | {"publicKey": "AAAA"}}}, PEER).long_name == "Meshtastic 0002"


def test_peer_shows_no_key():
    """§6: the key in the library's node list can be forged, so it is not even passed on."""
    nodes = {PEER: {"num": PEER, "user": {"longName": "User", "publicKey": "x"}, "isFavorite": True, "snr": "NaN"}}
    peer = read_peer(nodes, PEER)
    assert (peer.long_name, peer.is_favourite, peer.snr, peer.last_heard) == ("User", True, None, None)
    assert not hasattr(peer, "public_key")
    assert read_peer(nodes, 7) is None


def test_telemetry_of_the_own_node():
    nodes = {OWN: {"deviceMetrics": {"channelUtilization": 7.5, "airUtilTx": 0.25}}}
    assert read_telemetry(nodes, OWN) == Telemetry(7.5, 0.25)
    assert read_telemetry({}, OWN) == read_telemetry(None, OWN) == Telemetry()


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.7.26.54e0d8d", (2, 7, 26)), ("2.8.0", (2, 8, 0)), ("", ()), ("2.x", (2,)), ("٢.7", ())]
)
def test_firmware_version_is_read(text, numbers):
    assert version_numbers(text) == numbers


@pytest.mark.parametrize("iface", [None, Thing(), Thing(myInfo=None, nodesByNum=None, localNode=None, metadata=None)])
def test_empty_interface_does_not_raise(iface):
    assert read_node(iface).num == 0


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
NESTED = st.recursive(ODD, lambda inner: st.dictionaries(st.text(max_size=9), inner, max_size=3), max_leaves=5)
NAMES = st.sampled_from(
    ["user", "longName", "isLicensed", "publicKey", "deviceMetrics", "lastHeard", "snr", "hopsAway", "isFavorite"]
)


@settings(max_examples=100, deadline=None)
@given(entry=st.dictionaries(NAMES, NESTED, max_size=6))
def test_odd_node_entries_do_not_raise(entry):
    iface = interface()
    iface.nodesByNum[OWN] = entry
    assert isinstance(read_node(iface), NodeInfo)
    read_peer({PEER: entry}, PEER)
    read_telemetry({OWN: entry}, OWN)
