"""The meshtastic library is checked before it is trusted, and kept quiet."""

import logging
import tomllib
from pathlib import Path

import pytest

from meshai.errors import UnsupportedLibraryError
from meshai.radio import library

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_installed_library_is_supported():
    assert library.check().startswith("2.7.")
    assert library.missing_members() == []


@pytest.mark.parametrize("version", ["2.7.11", "2.7.12", "2.7.99", "2.7.11.post1"])
def test_versions_in_the_range_are_accepted(version):
    assert library.check(version) == version


@pytest.mark.parametrize("version", ["2.7.10", "2.6.4", "2.8.0", "2.8", "3.0.0a1", "", "nonsense"])
def test_other_versions_are_refused_with_the_range(version):
    with pytest.raises(UnsupportedLibraryError, match=r">=2\.7\.11,<2\.8") as caught:
        library.check(version)
    assert caught.value.exit_code == 3


def test_range_is_the_one_of_the_package():
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert f"meshtastic{library.SUPPORTED}" in dependencies


def test_missing_member_is_named(monkeypatch):
    from meshtastic.mesh_interface import MeshInterface

    monkeypatch.delattr(MeshInterface, "_sendPacket")
    with pytest.raises(UnsupportedLibraryError, match=r"MeshInterface\._sendPacket"):
        library.check()


def test_missing_attribute_is_named(monkeypatch):
    from meshtastic.tcp_interface import TCPInterface

    monkeypatch.setattr(TCPInterface, "__init__", lambda self: None)
    assert "TCPInterface.socket" in library.missing_members()


def test_library_debug_stays_off():
    logger = logging.getLogger("meshtastic")
    logger.setLevel(logging.DEBUG)
    library.keep_quiet()
    assert not logger.isEnabledFor(logging.INFO)
    assert not logging.getLogger("meshtastic.mesh_interface").isEnabledFor(logging.ERROR)


def test_library_prints_do_not_reach_the_output(capsys):
    from meshtastic import util

    library.keep_quiet()
    with pytest.raises(SystemExit):
        util.our_exit("Warning: secret text")
    assert capsys.readouterr().out == ""
