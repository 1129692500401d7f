"""The own node as a contact that Meshtastic's phone apps import: a link, also shown as a QR code.

The link carries a SharedContact protobuf with the node's public key. Whoever scans it has the right key before the
first message, so that the very first DM is encrypted and no stranger can slip in a key of his own.
"""

from __future__ import annotations

import base64

from meshai.radio.link import NodeInfo

PREFIX = "https://meshtastic.org/v/#"
"""Where the apps' link handlers look (Android's CONTACT_URL_PREFIX, iOS' canonicalPrefix); nothing is fetched."""


def contact_url(node: NodeInfo) -> str:
    """``https://meshtastic.org/v/#<base64url of a SharedContact, without padding>``, as the apps make it."""
    from meshtastic.protobuf import admin_pb2, config_pb2, mesh_pb2

    contact = admin_pb2.SharedContact(node_num=node.num)
    user = contact.user
    user.id = node.id
    user.long_name = node.long_name
    user.short_name = node.short_name
    user.hw_model = _value(mesh_pb2.HardwareModel, node.hardware)
    user.role = _value(config_pb2.Config.DeviceConfig.Role, node.role)
    user.public_key = node.public_key or b""
    user.is_licensed = node.licensed
    data = base64.urlsafe_b64encode(contact.SerializeToString()).decode("ascii")
    return PREFIX + data.rstrip("=")


def _value(enum: object, name: str) -> int:
    """The number of an enum's name; 0 for one that this library does not know."""
    values: dict[str, int] = dict(enum.items())  # type: ignore[attr-defined]
    return values.get(name, 0)
