"""What is wrong with the own node's settings, each with its fix: for the log, ``status`` and ``STATUS=``."""

from __future__ import annotations

from meshai.config.model import Settings
from meshai.radio.link import NodeInfo

HAM_MODE = (
    "the node is in ham mode (licensed): it neither sends nor accepts PKI direct messages, so nobody is answered. "
    "Switch ham mode off on the node, or set access.require_pki: false"
)


def node_problems(node: NodeInfo | None, settings: Settings) -> list[str]:
    """Each problem as one sentence; empty when all is well or no node was seen yet."""
    if node is None:
        return []
    problems = []
    if node.licensed and settings.access.require_pki:
        problems.append(HAM_MODE)
    if node.region == "UNSET":
        problems.append("the node has no LoRa region and transmits nothing: set it in the Meshtastic app")
    if node.public_key is None and not node.licensed:
        problems.append("the node has no public key, so no phone can send it a PKI direct message: update its firmware")
    known = {channel.name for channel in node.channels}
    for entry in settings.channels:
        if entry.name not in known:
            problems.append(f'the node has no channel "{entry.name}" (channels)')
        elif not entry.i_know_this_is_public and any(
            channel.name == entry.name and channel.has_default_key for channel in node.channels
        ):
            problems.append(
                f'channel "{entry.name}" has the default key and is public: '
                "set i_know_this_is_public: true for it, or use another channel"
            )
    return problems
