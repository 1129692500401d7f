"""The example file, the notes on features to come, and what a reload takes over."""

from pathlib import Path

import pytest

from meshai.config import later
from meshai.config.example import example
from meshai.config.explain import all_keys
from meshai.config.loader import load_settings
from meshai.config.model import Settings
from meshai.config.reload import FIXED, RELOADABLE, compare

ROOT = Path(__file__).parents[2]


def test_checked_in_example_is_the_generated_one():
    assert (ROOT / "config.example.yaml").read_text(encoding="utf-8") == example(), (
        "make it again: meshai config example > config.example.yaml"
    )


def test_example_equals_the_defaults():
    loaded = load_settings(ROOT / "config.example.yaml", {})
    assert loaded.settings == Settings()
    assert loaded.warnings == ()


def test_every_setting_has_a_sentence_in_the_example():
    text = example()
    for key in all_keys():
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{key.rpartition('.')[2]}:"))
        before = text[: text.index(line)].rstrip().rpartition("\n")[2]
        assert " # " in line or before.strip().startswith("#"), key


def test_keys_of_later_features_are_noted_when_given(load, monkeypatch):
    monkeypatch.setattr(
        later, "LATER", {"web": "not yet", "memory.strategy=sliding": "not yet", "reply.hold_s": "soon"}
    )
    loaded = load("web: {port: 80}\nmemory: {strategy: sliding}\nreply: {hold_s: 1, ttl_s: 20}\n")
    assert set(loaded.notes) == {"not yet: memory.strategy, web.port", "soon: reply.hold_s"}
    assert load("memory: {strategy: tiered}").notes == ()
    assert "# http://127.0.0.1:8680\n" in example()
    assert "0: off (soon)" in example()


def test_later_and_reload_tables_name_real_keys():
    keys = set(all_keys())
    assert {entry.partition("=")[0] for entry in later.LATER} <= keys
    assert keys >= RELOADABLE | FIXED


def _changed(**sections):
    return Settings.model_validate(sections)


def test_reload_takes_over_what_it_can():
    old = Settings()
    new = _changed(reply={"max_parts": 1}, log={"level": "debug"}, llm={"temperature": 0.1, "parallel": 2})
    result = compare(old, new)
    assert set(result.applied) == {"reply.max_parts", "log.level", "llm.temperature"}
    assert result.restart == ("llm.parallel",)
    assert (result.settings.reply.max_parts, result.settings.llm.temperature) == (1, 0.1)
    assert result.settings.llm.parallel == old.llm.parallel


@pytest.mark.parametrize(
    "sections",
    [{"connection": {"type": "tcp"}}, {"storage": {"database": "x"}}, {"memory": {"tuning": {"auto": False}}}],
)
def test_reload_leaves_the_rest_for_a_restart(sections):
    result = compare(Settings(), _changed(**sections))
    assert result.settings == Settings()
    assert len(result.restart) == 1


def test_reload_without_changes_is_empty():
    result = compare(Settings(), Settings())
    assert (result.applied, result.restart) == ((), ())


def test_reload_takes_over_channels_as_a_whole():
    result = compare(Settings(), _changed(channels=[{"name": "bot"}]))
    assert result.applied == ("channels",)
    assert result.settings.channels[0].name == "bot"
