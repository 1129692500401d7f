"""`meshai memory import` on a computer where nothing has run yet."""

import json
import os
import subprocess
import sys

EXPORT = {"format": "meshai-memory", "version": 1, "conversations": []}


def meshai(home, *args):
    return subprocess.run(
        [sys.executable, "-m", "meshai", *args],
        capture_output=True, text=True, cwd=home, timeout=30, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )  # fmt: skip


def test_import_begins_the_database(tmp_path):
    database = tmp_path / "state" / "meshai.db"
    (tmp_path / "config.yaml").write_text(f"storage: {{database: {json.dumps(str(database))}}}\n")
    (tmp_path / "out.json").write_text(json.dumps(EXPORT))
    assert meshai(tmp_path, "memory", "status", "-c", "config.yaml").returncode == 3
    done = meshai(tmp_path, "memory", "import", "out.json", "-c", "config.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert database.exists()
    assert meshai(tmp_path, "memory", "verify", "-c", "config.yaml").returncode == 0
