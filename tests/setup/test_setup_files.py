"""Writing: whole or not at all, for the owner only, nothing left over."""

import errno
import os

import pytest

from meshai.errors import ConfigError, MissingError, Mistake
from meshai.setup import files
from meshai.setup.files import Plan, write, write_all


@pytest.fixture
def target(tmp_path):
    return tmp_path / "conf" / "config.yaml"


def mode(path):
    return path.stat().st_mode & 0o777


def names(directory):
    return [path.name for path in directory.iterdir()]


def full_disk(monkeypatch, after=0):
    """fsync fails from the given call on: that is where a full disk shows at the latest."""
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", fsync)


def test_new_file_and_directory_are_private(target):
    write(target, b"a: 1\n")
    assert (target.read_bytes(), mode(target), mode(target.parent)) == (b"a: 1\n", 0o600, 0o700)


def test_existing_file_loses_rights_of_others_only(target):
    write(target, b"old")
    target.chmod(0o644)
    write(target, b"new")
    assert (target.read_bytes(), mode(target)) == (b"new", 0o640)


def test_symlink_stays_one(target, tmp_path):
    write(target, b"old")
    link = tmp_path / "link.yaml"
    link.symlink_to(target)
    write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_full_disk_leaves_old_file_and_no_rest(target, monkeypatch):
    write(target, b"old")
    full_disk(monkeypatch)
    with pytest.raises(MissingError, match="nothing was changed: no space left on device"):
        write(target, b"new")
    assert target.read_bytes() == b"old"
    assert names(target.parent) == ["config.yaml"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), ConfigError("f", [Mistake("a", "wrong")])])
def test_interruption_before_the_end_leaves_nothing(target, interruption):
    def check(path):
        raise interruption

    with pytest.raises(type(interruption)):
        write(target, b"new", check)
    assert names(target.parent) == []


def test_key_file_is_private_and_ends_its_line(target):
    key_file = files.key_file_for(target)
    write_all(Plan(target, "a: 1\n", key_file, "sk-secret"), lambda path: None)
    assert (key_file.read_text(), mode(key_file)) == ("sk-secret\n", 0o600)
    assert "sk-secret" not in target.read_text()


@pytest.mark.parametrize("before", [None, b"old key\n"])
def test_key_is_put_back_when_configuration_fails(target, before):
    key_file = files.key_file_for(target)
    if before:
        write(key_file, before)

    def check(path):
        raise ConfigError("f", [Mistake("a", "wrong")])

    with pytest.raises(ConfigError):
        write_all(Plan(target, "a: 1\n", key_file, "sk-new"), check)
    assert (key_file.read_bytes() if key_file.exists() else None) == before
    assert not target.exists()


def test_full_disk_at_second_file_takes_first_back(target, monkeypatch):
    full_disk(monkeypatch, after=2)  # the key file: itself and its directory
    with pytest.raises(MissingError):
        write_all(Plan(target, "a: 1\n", files.key_file_for(target), "k"), lambda path: None)
    assert names(target.parent) == []


def test_directory_in_the_way_is_explained(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(MissingError, match="was not written: not a directory"):
        write(tmp_path / "file" / "config.yaml", b"x")
