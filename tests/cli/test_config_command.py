"""``meshai config``."""

import pytest

from meshai.cli import execute
from meshai.config.example import example


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MESHAI_CONFIG", "MESHAI_DEBUG"):
        monkeypatch.delenv(name, raising=False)


def test_good_file_is_ok(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("bot: {name: hal}\n")
    assert execute(["config", "check", "c.yaml"]) == 0
    assert capsys.readouterr().out == "c.yaml: ok\n"


def test_warnings_notes_and_overrides_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MESHAI_REPLY__MAX_PARTS", "1")
    monkeypatch.setattr("meshai.config.later.LATER", {"web": "accepted, not used yet"})
    (tmp_path / "c.yaml").write_text("reply: {spacing_s: 1}\nweb: {enabled: true}\n")
    assert execute(["config", "check", "c.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "c.yaml: ok"
    assert lines[1] == "note: MESHAI_REPLY__MAX_PARTS of the environment is used"
    assert lines[2].startswith("warning: reply.spacing_s: 1 is below 2.0")
    assert lines[3] == "note: accepted, not used yet: web.enabled"


def test_mistakes_end_with_two(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("bot:\n  nam: hal\nreply: {max_parts: 0}\n")
    assert execute(["config", "check", "c.yaml"]) == 2
    assert capsys.readouterr().err == (
        "c.yaml:2:3: bot.nam: unknown key; did you mean name?\n"
        "c.yaml:3:9: reply.max_parts: must be at least 1 (got 0)\n"
    )


def test_key_cannot_reach_the_terminal_raw(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text('"\\e[2Jx": 1\n')
    assert execute(["config", "check", "c.yaml"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_missing_file_ends_with_two(capsys):
    assert execute(["config", "check", "gone.yaml"]) == 2
    assert capsys.readouterr().err == "gone.yaml: there is no such file\n"


def test_without_argument_the_file_of_run_is_checked(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("bot: {name: hal}\n")
    assert execute(["config", "check"]) == 0
    assert capsys.readouterr().out == "config.yaml: ok\n"


def test_example_can_be_used_as_it_is(tmp_path, capsys):
    assert execute(["config", "example"]) == 0
    text = capsys.readouterr().out
    assert text == example()
    (tmp_path / "c.yaml").write_text(text)
    assert execute(["config", "check", "c.yaml"]) == 0
