"""What a connected interface knows of its own node and of others, as values. Missing or odd fields never raise.

The library fills its objects while they are read here, on another thread; every look is a single lookup.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from meshai.radio import decode
from meshai.radio.airtime import PRESETS
from meshai.radio.link import Channel, NodeInfo, Peer, Telemetry

log = logging.getLogger(__name__)

DEFAULT_KEY = bytes.fromhex("d4f1bb3a20290759f0bcffabcf4e6901")
"""The key everybody has (firmware Channels.h defaultpsk); psk bytes 1..255 mean variants of its last byte."""
DEFAULT_HOPS = 3
"""HOP_RELIABLE, when the node sent no LoRa configuration (protocol.md §3.1)."""

WIDE_FACTOR = 3.25
"""2.4 GHz radios use 812.5 kHz where others use 250 (firmware MeshRadio.h)."""
_BANDWIDTH_CODES = {31: 31.25, 62: 62.5, 200: 203.125, 400: 406.25, 800: 812.5, 1600: 1625.0}
_SHORT_NAMES = {"LONG_MODERATE": "LongMod"}


def read_node(iface: object) -> NodeInfo:
    """The own node as the interface describes it after its handshake."""
    num = decode.number(getattr(_get(iface, "myInfo"), "my_node_num", None)) or 0
    nodes = _get(iface, "nodesByNum")
    user = _user(_entry(nodes, num))
    config = _get(_get(iface, "localNode"), "localConfig")
    lora = _get(config, "lora")
    preset = _preset(lora)
    bandwidth, spreading, coding = _modulation(lora, preset)
    about = _get(iface, "metadata")
    security_key = decode.key(_get(_get(config, "security"), "public_key"))
    return NodeInfo(
        num=num,
        long_name=_text(user.get("longName")),
        short_name=_text(user.get("shortName")),
        public_key=security_key or decode.key(user.get("publicKey")),
        firmware=_text(_get(about, "firmware_version")),
        hardware=_enum(about, "hw_model") if about is not None else _text(user.get("hwModel")),
        role=_enum(_get(config, "device"), "role") or "CLIENT",
        region=_enum(lora, "region") or "UNSET",
        preset=preset,
        bandwidth_khz=bandwidth,
        spreading_factor=spreading,
        coding_rate=coding,
        hop_limit=decode.number(_get(lora, "hop_limit")) or DEFAULT_HOPS,
        licensed=user.get("isLicensed") is True,
        override_duty_cycle=_get(lora, "override_duty_cycle") is True,
        channels=_channels(_get(_get(iface, "localNode"), "channels"), preset),
        nodes_known=len(nodes) if isinstance(nodes, Mapping) else 0,
    )


def read_peer(nodes: object, num: int) -> Peer | None:
    """A node out of the interface's node database."""
    entry = _entry(nodes, num)
    if not entry:
        return None
    user = _user(entry)
    if user.get("hwModel") == "UNSET" and "macaddr" not in user and "publicKey" not in user:
        user = {}  # made up by the library for a number it heard; the node has not introduced itself
    return Peer(
        num=num,
        long_name=_text(user.get("longName")),
        short_name=_text(user.get("shortName")),
        last_heard=decode.number(entry.get("lastHeard")) or None,
        hops_away=decode.number(entry.get("hopsAway")),
        snr=decode.real(entry.get("snr")),
        is_favourite=entry.get("isFavorite") is True,
    )


def read_telemetry(nodes: object, own_num: int) -> Telemetry:
    """The own node's device metrics, which it refreshes about every 60 s (protocol.md §4)."""
    metrics = _entry(nodes, own_num).get("deviceMetrics")
    if not isinstance(metrics, Mapping):
        return Telemetry()
    return Telemetry(
        channel_utilization_percent=decode.real(metrics.get("channelUtilization")),
        air_util_tx_percent=decode.real(metrics.get("airUtilTx")),
    )


def describe(node: NodeInfo) -> str:
    """The own node in one line for the log and ``status``."""
    about = f"firmware {node.firmware or 'unknown'}, {node.region} {node.preset}"
    return f"{node.id} ({about}, {node.nodes_known} nodes known)"


def version_numbers(firmware: str) -> tuple[int, ...]:
    """``2.7.26.54e0d8d`` as (2, 7, 26); empty when the text is no version."""
    numbers = []
    for part in firmware.split(".")[:3]:
        if not part.isascii() or not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _get(thing: object, name: str) -> Any:  # noqa: ANN401 - protobuf objects have no types
    return getattr(thing, name, None)


def _entry(nodes: object, num: int) -> Mapping[str, object]:
    entry = nodes.get(num) if isinstance(nodes, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


def _user(entry: Mapping[str, object]) -> Mapping[str, object]:
    user = entry.get("user")
    return user if isinstance(user, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _enum(message: object, field: str) -> str:
    """An enum field's name; its number as text when this library does not know it; "" without the message."""
    value = _get(message, field)
    if not isinstance(value, int):
        return ""
    try:
        names = _get(message, "DESCRIPTOR").fields_by_name[field].enum_type.values_by_number
        return str(names[value].name)
    except (AttributeError, KeyError, TypeError):
        return str(value)


def _preset(lora: object) -> str:
    if lora is None:
        return "LONG_FAST"
    # A configuration that never arrived has no field set at all; the firmware's default is then the best guess.
    if _get(lora, "use_preset") is False and decode.number(_get(lora, "spread_factor")):
        return "CUSTOM"
    return _enum(lora, "modem_preset") or "LONG_FAST"


def _modulation(lora: object, preset: str) -> tuple[float, int, int]:
    """Bandwidth, spreading factor and coding rate in use; the firmware lets a stronger coding rate win."""
    bandwidth = decode.number(_get(lora, "bandwidth")) or 0
    spreading = decode.number(_get(lora, "spread_factor")) or 0
    coding = decode.number(_get(lora, "coding_rate")) or 0
    coding = coding if 5 <= coding <= 8 else 0
    if preset in PRESETS:
        modem = PRESETS[preset]
        wide = WIDE_FACTOR if _enum(lora, "region") == "LORA_24" else 1.0
        return modem.bandwidth_khz * wide, modem.spreading_factor, max(modem.coding_rate, coding)
    modem = PRESETS["LONG_FAST"]
    khz = _BANDWIDTH_CODES.get(bandwidth, float(bandwidth)) if bandwidth else modem.bandwidth_khz
    factor = spreading if 5 <= spreading <= 12 else modem.spreading_factor
    return khz, factor, coding or modem.coding_rate


def _channels(channels: Iterable[object] | None, preset: str) -> tuple[Channel, ...]:
    """The channels in use. A name is the preset's when the channel has none, as the firmware shows it."""
    found = []
    primary_is_public = True
    for channel in channels or ():
        role = _enum(channel, "role")
        if role not in {"PRIMARY", "SECONDARY"}:
            continue
        settings = _get(channel, "settings")
        is_primary = role == "PRIMARY"
        public = _is_public(_get(settings, "psk"), is_primary=is_primary, primary_is_public=primary_is_public)
        if is_primary:
            primary_is_public = public
        found.append(
            Channel(
                index=decode.number(_get(channel, "index")) or 0,
                name=_text(_get(settings, "name")) or _preset_name(preset),
                is_primary=is_primary,
                has_default_key=public,
            )
        )
    return tuple(found)


def _is_public(psk: object, *, is_primary: bool, primary_is_public: bool) -> bool:
    """Whether everybody can read a channel: no key, a one-byte key, or the default key spelled out.

    A secondary channel without a key uses the primary's (firmware Channels.cpp getKey).
    """
    if not isinstance(psk, bytes) or not psk:
        return is_primary or primary_is_public
    return len(psk) == 1 or (len(psk) == len(DEFAULT_KEY) and psk[:-1] == DEFAULT_KEY[:-1])


def _preset_name(preset: str) -> str:
    if preset == "CUSTOM":
        return "Custom"
    return _SHORT_NAMES.get(preset, "".join(word.capitalize() for word in preset.split("_")))
