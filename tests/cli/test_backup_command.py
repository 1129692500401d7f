"""`meshai backup` and `meshai restore`, from the shell, against a running daemon's database."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from meshai.ops.lock import DatabaseLock
from meshai.ops.paths import lock_path
from meshai.storage.database import prepare


@pytest.fixture
def home(tmp_path):
    """A configuration and a database with one block in it."""
    (tmp_path / "config.yaml").write_text(f"storage: {{database: {json.dumps(str(tmp_path / 'meshai.db'))}}}\n")
    prepare(tmp_path / "meshai.db")
    block(tmp_path / "meshai.db", "!00000001")
    return tmp_path


def block(path, node):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO blocks (node_id, created_at) VALUES (?, 0)", (node,))


def blocked(path):
    with closing(sqlite3.connect(path)) as db:
        return [node for (node,) in db.execute("SELECT node_id FROM blocks ORDER BY node_id")]


def meshai(home, *args):
    done = subprocess.run(
        [sys.executable, "-m", "meshai", *args],
        capture_output=True, text=True, cwd=home, timeout=30, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_backup_and_restore_from_the_shell(home):
    assert meshai(home, "backup", "copy.db")[0] == 0
    assert (home / "copy.db").stat().st_mode & 0o777 == 0o600
    block(home / "meshai.db", "!00000002")
    code, out, err = meshai(home, "restore", "copy.db")
    assert (code, err) == (0, "")
    assert "the database before is kept as" in out
    assert blocked(home / "meshai.db") == ["!00000001"]
    (aside,) = home.glob("meshai.db.replaced-*")
    assert blocked(aside) == ["!00000001", "!00000002"]


def test_restore_under_a_running_daemon_is_refused(home):
    meshai(home, "backup", "copy.db")
    with DatabaseLock(lock_path(home / "meshai.db")):
        assert meshai(home, "backup", "copy2.db")[0] == 0
        code, _, err = meshai(home, "restore", "copy.db")
    assert code == 3
    assert "sudo systemctl stop meshai" in err
    assert not list(home.glob("*.replaced-*"))


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("backup", "config.yaml"), 2, "--force"),
        (("backup", "meshai.db", "--force"), 2, "is the database itself"),
        (("backup", "."), 2, "is a directory"),
        (("restore", "config.yaml"), 1, "damaged"),
        (("restore", "nothing"), 3, "there is no"),
        (("restore", "meshai.db"), 2, "is the database itself"),
    ],
)
def test_mistake_is_one_sentence(home, args, code, says):
    got, out, err = meshai(home, *args)
    assert (got, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1
    assert blocked(home / "meshai.db") == ["!00000001"]
