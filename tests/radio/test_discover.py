"""Which serial port, and when to refuse (docs/protocol.md §8)."""

import pytest

from meshai.errors import LinkDownError
from meshai.radio.discover import Port, find_port, list_ports


@pytest.fixture
def by_id(tmp_path):
    """A /dev with three devices and by-id names for two of them."""
    for device in ("ttyACM0", "ttyACM1", "ttyUSB0"):
        (tmp_path / device).touch()
    folder = tmp_path / "by-id"
    folder.mkdir()
    (folder / "usb-RAK_WisBlock-if00").symlink_to(tmp_path / "ttyACM0")
    (folder / "usb-GPS-if00").symlink_to(tmp_path / "ttyACM1")
    return folder


def port(by_id, name, vendor):
    return Port(str(by_id.parent / name), vendor)


def test_single_node_is_found_by_its_stable_name(by_id):
    ports = [port(by_id, "ttyACM0", 0x239A), port(by_id, "ttyACM1", 0x1546), port(by_id, "ttyUSB0", None)]
    assert find_port("auto", by_id=by_id, ports=lambda: ports) == str(by_id / "usb-RAK_WisBlock-if00")


@pytest.mark.parametrize("vendor", [0x239A, 0x303A, 0x10C4, 0x1A86, 0x2886])
def test_every_known_vendor_is_a_node(by_id, vendor):
    assert find_port("auto", by_id=by_id, ports=lambda: [port(by_id, "ttyUSB0", vendor)]).endswith("ttyUSB0")


def test_device_without_by_id_folder_is_used_directly(tmp_path):
    ports = [Port("/dev/ttyACM7", 0x303A)]
    assert find_port("auto", by_id=tmp_path / "absent", ports=lambda: ports) == "/dev/ttyACM7"


def test_several_nodes_are_listed_not_guessed(by_id):
    ports = [port(by_id, "ttyUSB0", 0x10C4), port(by_id, "ttyACM0", 0x239A)]
    with pytest.raises(LinkDownError) as caught:
        find_port("auto", by_id=by_id, ports=lambda: ports)
    assert "usb-RAK_WisBlock-if00 (nRF52" in str(caught.value)
    assert "ttyUSB0 (CP210x)" in str(caught.value)
    assert "connection.serial_port" in str(caught.value)


def test_strange_ports_are_named_but_not_taken(by_id):
    with pytest.raises(LinkDownError, match=r"no Meshtastic node found on USB.*usb-GPS-if00"):
        find_port("auto", by_id=by_id, ports=lambda: [port(by_id, "ttyACM1", 0x1546)])


def test_no_port_at_all_says_so(by_id):
    with pytest.raises(LinkDownError, match=r"^no Meshtastic node found on USB$"):
        find_port("auto", by_id=by_id, ports=list)


def test_a_given_path_is_taken_even_while_absent():
    assert find_port("/dev/serial/by-id/gone", ports=lambda: pytest.fail("looked")) == "/dev/serial/by-id/gone"


def test_this_computer_can_be_asked():
    assert all(isinstance(found, Port) for found in list_ports())
