"""The frames of the configuration download, in the firmware's order (docs/protocol.md §7, recording 01)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError as _DecodeError
from meshtastic.protobuf import channel_pb2, config_pb2, device_ui_pb2, mesh_pb2, module_config_pb2

from meshai.radio.airtime import PRESETS
from meshai.radio.virtual.frame import HOP_MAX
from meshai.radio.virtual.packets import HARDWARE
from meshai.radio.virtual.settings import ChannelSettings, NodeSettings

if TYPE_CHECKING:
    from meshai.radio.virtual.database import KnownNode
    from meshai.radio.virtual.node import VirtualNode

DecodeError = _DecodeError
ONLY_CONFIG, ONLY_NODES = 69420, 69421
"""Nonces that ask for a part of the download (protocol.md §7)."""
CHANNELS = 8
FILES = (
    ("/prefs/device.proto", 100), ("/prefs/nodes.proto", 496), ("/prefs/channels.proto", 57),
    ("/prefs/config.proto", 181), ("/prefs/module.proto", 99),
)  # fmt: skip
_MODULES = (
    "serial", "external_notification", "store_forward", "range_test", "telemetry", "canned_message", "audio",
    "remote_hardware", "neighbor_info", "ambient_lighting", "detection_sensor", "paxcounter",
)  # fmt: skip


def download(node: VirtualNode, nonce: int) -> Iterator[Any]:
    """Every FromRadio of the download that a nonce asks for, the closing echo included."""
    if nonce != ONLY_NODES:
        yield mesh_pb2.FromRadio(my_info=my_info(node))
        ui = device_ui_pb2.DeviceUIConfig(screen_brightness=153, screen_timeout=30)
        yield mesh_pb2.FromRadio(deviceuiConfig=ui)
    yield mesh_pb2.FromRadio(node_info=own_node_info(node))
    if nonce != ONLY_NODES:
        yield mesh_pb2.FromRadio(metadata=metadata(node))
        for index in range(CHANNELS):
            yield mesh_pb2.FromRadio(channel=channel(node, index))
        for section in configs(node):
            yield mesh_pb2.FromRadio(config=section)
        for section in module_configs():
            yield mesh_pb2.FromRadio(moduleConfig=section)
    if nonce != ONLY_CONFIG:
        for known in node.database.all():
            yield mesh_pb2.FromRadio(node_info=node_info(known))
    if nonce != ONLY_NODES:
        for name, size in FILES:
            yield mesh_pb2.FromRadio(fileInfo=mesh_pb2.FileInfo(file_name=name, size_bytes=size))
    yield mesh_pb2.FromRadio(config_complete_id=nonce)


def my_info(node: VirtualNode) -> Any:  # noqa: ANN401
    """MyNodeInfo."""
    return mesh_pb2.MyNodeInfo(
        my_node_num=node.num,
        min_app_version=30200,
        reboot_count=node.boots,
        pio_env="virtual",
        nodedb_count=len(node.database) + 1,
    )


def metadata(node: VirtualNode) -> Any:  # noqa: ANN401
    """DeviceMetadata."""
    return mesh_pb2.DeviceMetadata(
        firmware_version=node.settings.firmware,
        device_state_version=24,
        hasWifi=True,
        position_flags=811,
        hw_model=HARDWARE,
        role=config_pb2.Config.DeviceConfig.Role.Value(node.settings.role),
        hasPKC=True,
    )


def own_node_info(node: VirtualNode) -> Any:  # noqa: ANN401
    """The own entry of the node database; the node is its own favourite."""
    clock = node.clock()
    return mesh_pb2.NodeInfo(
        num=node.num,
        user=node.modules.user(),
        position=mesh_pb2.Position(time=clock),
        device_metrics=node.modules.metrics,
        last_heard=clock,
        is_favorite=True,
    )


def node_info(known: KnownNode) -> Any:  # noqa: ANN401
    """Another node's entry."""
    made = mesh_pb2.NodeInfo(
        num=known.num,
        snr=known.snr,
        last_heard=known.last_heard,
        is_favorite=known.favourite,
        is_ignored=known.ignored,
        via_mqtt=known.via_mqtt,
    )
    if known.hops_away is not None:
        made.hops_away = known.hops_away
    if known.has_user:
        user = mesh_pb2.User(
            id=f"!{known.num:08x}",
            long_name=known.long_name,
            short_name=known.short_name,
            macaddr=b"\x02\x00" + known.num.to_bytes(4, "big"),
            hw_model=HARDWARE,
            role=known.role,
            public_key=known.key,
            is_licensed=known.is_licensed,
        )
        user.is_unmessagable = False
        made.user.CopyFrom(user)
    return made


def channel(node: VirtualNode, index: int) -> Any:  # noqa: ANN401
    """A channel; those not in use are disabled and empty."""
    if not 0 <= index < len(node.settings.channels):
        return channel_pb2.Channel(index=index, settings=channel_pb2.ChannelSettings())
    chosen = node.settings.channels[index]
    settings = channel_pb2.ChannelSettings(name=chosen.name, psk=chosen.psk)
    settings.module_settings.position_precision = 13
    role = channel_pb2.Channel.Role.PRIMARY if index == 0 else channel_pb2.Channel.Role.SECONDARY
    return channel_pb2.Channel(index=index, settings=settings, role=role)


def configs(node: VirtualNode) -> list[Any]:
    """The ten Config sections."""
    make = config_pb2.Config
    settings = node.settings
    role = make.DeviceConfig.Role.Value(settings.role)
    return [
        make(device=make.DeviceConfig(role=role, node_info_broadcast_secs=10800)),
        make(position=make.PositionConfig(position_broadcast_secs=3600, gps_mode=2, position_flags=811)),
        make(power=make.PowerConfig(wait_bluetooth_secs=60, ls_secs=300, min_wake_secs=10)),
        make(network=make.NetworkConfig(ntp_server="meshtastic.pool.ntp.org")),
        make(display=make.DisplayConfig(screen_on_secs=600)),
        make(lora=lora(settings)),
        make(bluetooth=make.BluetoothConfig(mode=1, fixed_pin=123456)),
        make(
            security=make.SecurityConfig(public_key=node.public_key, private_key=node.private_key, serial_enabled=True)
        ),
        make(sessionkey=make.SessionkeyConfig()),
        make(device_ui=device_ui_pb2.DeviceUIConfig()),
    ]


def lora(settings: NodeSettings) -> Any:  # noqa: ANN401
    """The LoRa section."""
    make = config_pb2.Config.LoRaConfig
    modem = settings.modem
    return make(
        use_preset=True,
        modem_preset=make.ModemPreset.Value(settings.preset),
        bandwidth=int(modem.bandwidth_khz),
        spread_factor=modem.spreading_factor,
        coding_rate=modem.coding_rate,
        region=make.RegionCode.Value(settings.region),
        hop_limit=settings.hop_limit,
        tx_enabled=settings.tx_enabled,
        tx_power=30,
        override_duty_cycle=settings.override_duty_cycle,
        sx126x_rx_boosted_gain=True,
        fem_lna_mode="NOT_PRESENT",
    )


def module_configs() -> list[Any]:
    """The ModuleConfig sections; three that the library cannot name are empty, as recorded."""
    make = module_config_pb2.ModuleConfig
    mqtt = make.MQTTConfig(address="mqtt.meshtastic.org", encryption_enabled=True, root="msh/US")
    sections = [make(mqtt=mqtt)]
    for name in _MODULES:
        section = make()
        getattr(section, name).SetInParent()
        sections.append(section)
    return sections + [make() for _ in range(3)]


def take_channel(settings: NodeSettings, wanted: Any) -> None:  # noqa: ANN401
    """Apply an admin's channel; roles DISABLED at the end shorten the list."""
    if not 0 <= wanted.index < CHANNELS:
        return
    while len(settings.channels) <= wanted.index:
        settings.channels.append(ChannelSettings())
    if wanted.role == channel_pb2.Channel.Role.DISABLED:
        del settings.channels[max(1, wanted.index) :]
    else:
        settings.channels[wanted.index] = ChannelSettings(wanted.settings.name, wanted.settings.psk)


def take_lora(settings: NodeSettings, wanted: Any) -> bool:  # noqa: ANN401
    """Apply an admin's LoRa section; False for a preset or region that this node does not know."""
    make = config_pb2.Config.LoRaConfig
    try:
        preset, region = make.ModemPreset.Name(wanted.modem_preset), make.RegionCode.Name(wanted.region)
    except ValueError:
        return False
    if preset not in PRESETS:
        return False
    settings.preset, settings.region = preset, region
    settings.hop_limit = min(wanted.hop_limit, HOP_MAX) or settings.hop_limit
    settings.tx_enabled = wanted.tx_enabled
    settings.override_duty_cycle = wanted.override_duty_cycle
    return True
