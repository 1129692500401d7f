"""Finding and reading the node, over TCP and over a serial port, with everything that goes wrong."""

import asyncio
from pathlib import Path

import pytest

from meshai.clock import SystemClock
from meshai.errors import LinkDownError
from meshai.radio.discover import Port
from meshai.setup import node as nodes

CLOCK = SystemClock()


def over_tcp(mesh):
    return nodes.connection_for(tcp=(mesh.bot_host, mesh.bot_port))


async def test_node_is_read_over_tcp_and_the_port_is_free_again(mesh):
    node = await nodes.read(over_tcp(mesh), CLOCK)
    assert (node.id, node.long_name, node.region, node.preset, node.role) == (
        "!0b07a1a1", "MeshAI", "US", "LONG_FAST", "CLIENT",
    )  # fmt: skip
    assert node.public_key == mesh.bot.public_key
    assert not mesh.port.connected


async def test_node_is_read_over_usb(usb):
    node = await nodes.read(nodes.connection_for(serial_port=usb.path), CLOCK)
    assert node.id == "!0b07a1a1"


def test_boards_are_listed_first_by_their_lasting_names(tmp_path):
    device = tmp_path / "ttyACM0"
    device.touch()
    by_id = tmp_path / "by-id"
    by_id.mkdir()
    (by_id / "usb-RAK_1").symlink_to(device)
    ports = [Port("/dev/ttyS0"), Port("/dev/ttyUSB9", 0x0403, "GPS"), Port(str(device), 0x239A)]
    found = nodes.on_usb(by_id=by_id, ports=lambda: ports)
    assert [(each.port, each.label) for each in found] == [
        (str(by_id / "usb-RAK_1"), "nRF52 (Adafruit, RAK)"),
        ("/dev/ttyUSB9", "GPS"),
    ]


async def test_closed_port_is_told():
    with pytest.raises(LinkDownError, match="nothing listens there"):
        await nodes.read(nodes.connection_for(tcp=("127.0.0.1", 9)), CLOCK)


async def test_missing_serial_port_is_told(tmp_path):
    with pytest.raises(LinkDownError, match="not there"):
        await nodes.read(nodes.connection_for(serial_port=str(tmp_path / "none")), CLOCK)


async def test_silent_device_is_told(mesh):
    """A GPS, or a board in its boot loader: the port opens and nothing comes."""
    mesh.port.silent = True
    with pytest.raises(LinkDownError):
        await nodes.read(over_tcp(mesh), CLOCK)


async def test_port_unplugged_while_reading_is_told(usb):
    reading = asyncio.create_task(nodes.read(nodes.connection_for(serial_port=usb.path), CLOCK))
    await asyncio.sleep(0.15)
    usb.unplug()
    with pytest.raises(LinkDownError, match=r"not there|went away"):
        await reading


def test_node_of_the_daemon_has_its_key():
    facts = {"num": 7, "long_name": "A", "region": "EU_868", "licensed": True, "public_key": "00" * 32, "url": "x"}
    node = nodes.from_daemon(facts)
    assert (node.id, node.region, node.licensed, node.public_key) == ("!00000007", "EU_868", True, bytes(32))


def test_by_id_directory_may_be_missing():
    ports = [Port("/dev/ttyACM0", 0x303A)]
    assert nodes.on_usb(by_id=Path("/nonexistent"), ports=lambda: ports)[0].port == "/dev/ttyACM0"
