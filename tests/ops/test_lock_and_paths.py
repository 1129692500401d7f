"""One daemon per database, and where its files are."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from meshai.errors import AlreadyRunningError, MissingError
from meshai.ops import paths
from meshai.ops.lock import DatabaseLock

HOLD = """
import sys
from meshai.ops.lock import DatabaseLock
from pathlib import Path
DatabaseLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    path = tmp_path / "meshai.db.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield path, process
        process.kill()


def test_second_daemon_is_told_who_holds_the_database(holder):
    path, process = holder
    with pytest.raises(AlreadyRunningError, match=rf"another MeshAI \(process {process.pid}\) uses this database"):
        DatabaseLock(path).acquire()


def test_killed_daemon_leaves_no_lock_behind(holder):
    path, process = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    with DatabaseLock(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_lock_is_free_after_release(tmp_path):
    first, second = DatabaseLock(tmp_path / "x.lock"), DatabaseLock(tmp_path / "x.lock")
    first.acquire()
    with pytest.raises(AlreadyRunningError):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_garbage_in_the_lock_file_is_not_shown(tmp_path):
    path = tmp_path / "x.lock"
    with DatabaseLock(path):
        path.write_bytes(b"\xff\x1b[2J")
        with pytest.raises(AlreadyRunningError, match=r"^another MeshAI uses this database"):
            DatabaseLock(path).acquire()


def test_missing_directory_is_said_plainly(tmp_path):
    with pytest.raises(MissingError, match=r"cannot open .*: No such file or directory"):
        DatabaseLock(tmp_path / "gone" / "x.lock").acquire()


def test_lock_file_is_private(tmp_path):
    with DatabaseLock(tmp_path / "x.lock"):
        assert (tmp_path / "x.lock").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("configured", "env", "expected"),
    [
        ("", {"STATE_DIRECTORY": "/var/lib/meshai:/var/lib/other", "HOME": "/h"}, "/var/lib/meshai/meshai.db"),
        ("", {"HOME": "/h"}, "/h/.local/share/meshai/meshai.db"),
        ("~/mesh.db", {"HOME": "/h"}, "/h/mesh.db"),
        ("/data/mesh.db", {}, "/data/mesh.db"),
    ],
)
def test_database_is_where_the_design_says(configured, env, expected):
    assert paths.database_path(configured, env) == Path(expected)


def test_without_home_the_cure_is_named():
    with pytest.raises(MissingError, match=r"set storage\.database"):
        paths.database_path("", {})


def test_control_socket_is_in_the_runtime_directory_or_beside_the_database():
    database = Path("/data/mesh.db")
    assert paths.control_socket(database, {"RUNTIME_DIRECTORY": "/run/meshai"}) == Path("/run/meshai/control.sock")
    assert paths.control_socket(database, {}) == Path("/data/mesh.db.sock")
    assert paths.lock_path(database) == Path("/data/mesh.db.lock")


def test_running_daemon_is_found_from_a_plain_shell(tmp_path, monkeypatch):
    """The service listens in /run/meshai; a shell has no RUNTIME_DIRECTORY."""
    monkeypatch.setattr(paths, "SERVICE_RUNTIME", tmp_path)
    database = tmp_path / "db" / "meshai.db"
    assert paths.find_control_socket(database, {}) is None
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(tmp_path / "control.sock"))
        assert paths.find_control_socket(database, {}) == tmp_path / "control.sock"


def test_closed_directory_holds_no_socket(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "SERVICE_RUNTIME", tmp_path)
    assert paths.find_control_socket(tmp_path / ("x" * 300) / "meshai.db", {}) is None


def test_private_directory_is_made_with_parents(tmp_path):
    paths.make_private_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(MissingError, match="cannot create the directory"):
        paths.make_private_dir(tmp_path / "file" / "b")
