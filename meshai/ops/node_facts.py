"""The own node as ``status`` describes it, and back again for who reads ``status``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshai.radio.link import Channel, NodeInfo, node_num


def node_of(facts: Mapping[str, Any]) -> NodeInfo | None:
    """The node as the daemon's ``status`` describes it; None when it does not say enough (an older daemon)."""
    node = facts.get("node")
    if not isinstance(node, Mapping) or "firmware" not in node:
        return None
    return NodeInfo(
        num=node_num(str(node["id"])),
        long_name=str(node["name"]),
        public_key=b"\1" * 32 if node["has_key"] else None,
        firmware=str(node["firmware"]),
        role=str(node["role"]),
        region=str(node["region"]),
        preset=str(node["preset"]),
        hop_limit=int(node["hop_limit"]),
        licensed=bool(node["licensed"]),
        override_duty_cycle=bool(node["override_duty_cycle"]),
        channels=tuple(
            Channel(index, str(channel["name"]), has_default_key=bool(channel["has_default_key"]))
            for index, channel in enumerate(node["channels"])
        ),
    )


def described(node: NodeInfo) -> dict[str, object]:
    """The part of ``status`` that ``node_of`` reads; JSON types only."""
    return {
        "id": node.id,
        "name": node.long_name,
        "region": node.region,
        "preset": node.preset,
        "firmware": node.firmware,
        "hardware": node.hardware,
        "role": node.role,
        "hop_limit": node.hop_limit,
        "licensed": node.licensed,
        "has_key": node.public_key is not None,
        "override_duty_cycle": node.override_duty_cycle,
        "nodes_known": node.nodes_known,
        "channels": [{"name": one.name, "has_default_key": one.has_default_key} for one in node.channels],
    }
