"""Looking at the lock without taking it, and whose database a subcommand means."""

import os
from pathlib import Path

import pytest

from meshai.ops import paths
from meshai.ops.lock import DatabaseLock, is_held


def test_lock_is_seen_only_while_it_is_held(tmp_path):
    path = tmp_path / "meshai.db.lock"
    assert is_held(path) is False
    with DatabaseLock(path):
        assert is_held(path) is True
        assert is_held(path) is True, "looking takes nothing"
    assert is_held(path) is False


def test_lock_that_cannot_be_opened_is_unknown(tmp_path, monkeypatch):
    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert is_held(tmp_path / "x") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_lock_made_by_root_belongs_to_the_daemons_user(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    with DatabaseLock(tmp_path / "meshai.db.lock"):
        pass
    assert (tmp_path / "meshai.db.lock").stat().st_uid == 65534


@pytest.mark.parametrize(
    ("configured", "source", "env", "wanted"),
    [
        ("", paths.SERVICE_CONFIG, {"HOME": "/root"}, "/var/lib/meshai/meshai.db"),
        ("", Path("/root/config.yaml"), {"HOME": "/root"}, "/root/.local/share/meshai/meshai.db"),
        ("", None, {"HOME": "/root"}, "/root/.local/share/meshai/meshai.db"),
        ("/x/y.db", paths.SERVICE_CONFIG, {"HOME": "/root"}, "/x/y.db"),
        ("", paths.SERVICE_CONFIG, {"STATE_DIRECTORY": "/s"}, "/s/meshai.db"),
    ],
)
def test_subcommand_with_the_services_configuration_means_its_database(configured, source, env, wanted):
    assert paths.find_database(configured, source, env) == Path(wanted)
