"""`meshai doctor` from the shell: exit codes, JSON, and no terminal escapes from anywhere."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def meshai(tmp_path):
    def run(text, *args):
        (tmp_path / "config.yaml").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "meshai", "doctor", "--no-node", *args],
            capture_output=True, text=True, cwd=tmp_path, timeout=50, check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        )  # fmt: skip

    return run


def test_findings_as_json_and_exit_code(meshai):
    done = meshai("connection: {type: tcp}\nllm: {endpoints: []}\n", "--json")
    found = json.loads(done.stdout)
    failed = [check for check in found if check["status"] == "fail"]
    assert done.returncode == bool(failed)
    assert done.stderr == ""
    assert {"configuration", "database", "disk", "python"} <= {check["name"] for check in found}
    assert all(check["fix"] for check in failed)


def test_failure_exits_one_and_shows_the_fix(meshai):
    done = meshai('bot: {nam: "x"}\n')
    assert done.returncode == 1
    assert "FAIL  configuration: " in done.stdout
    assert "\n      fix: meshai config check" in done.stdout
    assert "\x1b" not in done.stdout
