"""The contact link is what the phone apps and the stock library read."""

import base64
from unittest.mock import MagicMock

from meshtastic.node import Node
from meshtastic.protobuf import admin_pb2, config_pb2, mesh_pb2

from meshai.radio.contact import contact_url
from meshai.radio.link import NodeInfo
from meshai.setup import qr

KEY = bytes(range(32))
BOT = NodeInfo(
    num=0x0B07A1A1, long_name="Frag mich 📻", short_name="AI", public_key=KEY, hardware="HELTEC_V3", role="CLIENT_MUTE"
)


def read(url):
    data = url.removeprefix("https://meshtastic.org/v/#")
    return admin_pb2.SharedContact.FromString(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)))


def test_link_holds_node_name_and_key():
    contact = read(contact_url(BOT))
    assert (contact.node_num, contact.user.id, contact.user.public_key) == (0x0B07A1A1, "!0b07a1a1", KEY)
    assert (contact.user.long_name, contact.user.short_name) == ("Frag mich 📻", "AI")
    assert contact.user.hw_model == mesh_pb2.HardwareModel.HELTEC_V3
    assert contact.user.role == config_pb2.Config.DeviceConfig.Role.CLIENT_MUTE
    assert not contact.manually_verified
    assert not contact.should_ignore


def test_link_has_no_padding_and_only_url_letters():
    for number in range(4):
        url = contact_url(NodeInfo(num=1, long_name="x" * number, public_key=b"\xff" * 32))
        assert url.rpartition("#")[2].replace("-", "").replace("_", "").isalnum()


def test_unknown_board_and_missing_key_are_left_out():
    contact = read(contact_url(NodeInfo(num=7, hardware="BOARD_OF_TOMORROW", role="99", licensed=True)))
    assert (contact.user.hw_model, contact.user.role, contact.user.public_key) == (0, 0, b"")
    assert contact.user.is_licensed


def test_stock_library_adds_the_contact():
    node = Node(MagicMock(), 1, noProto=True)
    node.ensureSessionKey = MagicMock()
    node._sendAdmin = MagicMock()
    node.addContactURL(contact_url(BOT))
    assert node._sendAdmin.call_args.args[0].add_contact == read(contact_url(BOT))


def modules(art):
    lines = art.splitlines()
    return [row for line in lines for row in ([c in "█▀" for c in line], [c in "█▄" for c in line])]


def test_half_blocks_show_every_module():
    wanted = qr.matrix(contact_url(BOT))
    shown = modules(qr.half_blocks(contact_url(BOT), colour=False))
    assert shown[: len(wanted)] == wanted
    assert not any(map(any, shown[len(wanted) :]))


def test_code_has_finders_and_quiet_zone_and_fits_a_terminal():
    rows = qr.matrix(contact_url(BOT))
    assert len(rows) == len(rows[0]) <= 72
    assert not any(any(row) for row in rows[:4])
    assert rows[4][4:11] == [True] * 7
    assert rows[5][4:11] == [True, *[False] * 5, True]


def test_colours_are_set_for_dark_and_light_terminals():
    """Black and white by number, on every line, and given back at its end."""
    lines = qr.half_blocks("x", colour=True).splitlines()
    assert all(line.startswith("\x1b[38;5;16;48;5;231m") and line.endswith("\x1b[0m") for line in lines)
    assert "\x1b" not in qr.half_blocks("x", colour=False)
