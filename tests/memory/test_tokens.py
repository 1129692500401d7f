"""Counting, calibration, silent truncation; docs/memory.md §2.4."""

from __future__ import annotations

import asyncio
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from meshai.config.model import Memory as MemorySettings
from meshai.llm.base import Usage
from meshai.memory import calibrate, vocabulary
from meshai.memory.budget import plan
from meshai.memory.meter import Meter
from meshai.memory.tokens import TokenCounter, cut_middle, estimate, least_estimate, uses_o200k
from meshai.storage.calibration import Calibration
from meshai.storage.database import Database


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("The quick brown fox jumps over the lazy dog.", 9, 13),
        ("Привет, как дела сегодня?", 10, 16),
        ("今日は良い天気です", 9, 14),
        ("👨‍👩‍👧‍👦", 10, 20),
        ("Grüße aus Bad Tölz", 5, 12),
        ("12345 67890", 5, 10),
    ],
)
def test_estimate_by_script(text: str, least: int, most: int) -> None:
    assert least <= estimate(text) <= most
    assert least_estimate(text) <= estimate(text)


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4o-mini", "openai/gpt-5", "gpt-4.1-nano", "o3-mini", "gpt-oss:20b"])
def test_models_with_a_known_vocabulary(model: str) -> None:
    assert uses_o200k(model)


@pytest.mark.parametrize("model", ["llama3.2", "qwen3:8b", "gpt-4", "o300", "", "solar"])
def test_other_models_are_estimated(model: str) -> None:
    assert not uses_o200k(model)


async def test_vocabulary_is_loaded_once_and_lazily() -> None:
    loads: list[int] = []

    def load() -> Any:
        loads.append(1)
        return lambda text: 7

    counter = TokenCounter("auto", load=load)
    assert counter.measure("llama3.2")("x") == 1
    assert loads == []
    assert counter.measure("gpt-4o")("hello there friend") == estimate("hello there friend")
    counter.measure("gpt-4o")
    await counter.ready()
    assert counter.measure("gpt-4o")("x") == 7
    assert counter.is_exact("gpt-4o")
    assert loads == [1]
    assert TokenCounter("estimate", load=load).measure("gpt-4o")("x") == 1


async def test_missing_vocabulary_falls_back(caplog: Any) -> None:
    def load() -> Any:
        raise OSError("no such file")

    counter = TokenCounter("tiktoken", load=load)
    counter.measure("llama3.2")
    await counter.ready()
    assert counter.measure("llama3.2") is estimate
    assert "counting tokens by estimate" in caplog.text


@pytest.fixture(scope="module")
def packed() -> Path:
    path = Path(vocabulary.__file__).parents[1] / "llm" / "vocab" / "o200k_base.tiktoken.xz"
    assert path.exists()
    return path


def test_vocabulary_counts_exactly_without_a_network(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("requests.get", no_network)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    count = vocabulary.load(tmp_path)
    assert count("hello world") == 2
    assert count("<|endoftext|>") > 1
    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [vocabulary.NAME]


def test_damaged_cache_file_is_replaced_before_tiktoken_sees_it(packed: Path, tmp_path: Path) -> None:
    (tmp_path / vocabulary.NAME).write_bytes(b"damaged")
    path = vocabulary.ensure(tmp_path)
    assert path.stat().st_size == 3_613_922
    stamp = path.stat().st_mtime_ns
    vocabulary.ensure(tmp_path)
    assert path.stat().st_mtime_ns == stamp


def test_damaged_package_file_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    fake = tmp_path / "vocab"
    fake.mkdir()
    (fake / "o200k_base.tiktoken.xz").write_bytes(lzma.compress(b"something else"))
    monkeypatch.setattr(vocabulary.resources, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match="damaged"):
        vocabulary.ensure(tmp_path / "cache")


def test_cache_place_follows_systemd(monkeypatch: Any) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", "/var/cache/meshai")
    assert vocabulary.default_cache() == Path("/var/cache/meshai/tiktoken")


def test_cut_keeps_both_ends_within_the_limit() -> None:
    text = "begin " + "middle " * 500 + "finish"
    cut = cut_middle(text, 50, estimate)
    assert estimate(cut) <= 50
    assert cut.startswith("begin")
    assert cut.endswith("finish")
    assert cut_middle("short", 50, estimate) == "short"


# --- calibration ---


def test_error_below_five_percent_after_twenty_calls() -> None:  # S4-17
    known = Calibration("m")
    for n in range(20):
        size = 300 + 37 * n
        known = calibrate.observe(known, size, int(size * 0.81), now=float(n))
    assert abs(known.ratio_mean * 1000 - 810) < 50
    assert 0.81 <= calibrate.factor(known) < 0.81 * 1.15


@pytest.mark.parametrize("counted", [0, -1])
def test_absent_counts_teach_nothing(counted: int) -> None:
    known = Calibration("m", ratio_mean=0.9, n=5)
    assert calibrate.observe(known, 500, counted, 1.0) == known


def test_factor_is_bounded_and_careful_at_first() -> None:
    assert calibrate.factor(None) == 1.15
    known = calibrate.observe(Calibration("m"), 10, 10_000, 1.0)
    assert calibrate.factor(known) == 3.0


def test_learned_context_is_believed_for_a_day() -> None:
    known = calibrate.refused(Calibration("m"), 4096, now=1000.0)
    assert calibrate.context(known, 32_768, now=1000.0 + 3600) == 4096
    assert calibrate.context(known, 32_768, now=1000.0 + 90_000) == 32_768
    assert calibrate.context(known, 2048, now=1000.0) == 2048


async def test_usage_scales_the_next_budget(db: Database, clock: Any) -> None:
    meter = Meter(MemorySettings(), clock)
    before = meter.budget("m", context_tokens=4096, reply_tokens=200).usable
    for _ in range(20):
        meter.learn("m", 1000, Usage(prompt_tokens=2000))
    after = meter.budget("m", context_tokens=4096, reply_tokens=200).usable
    assert after < before * 0.65
    await meter.save(db)
    again = Meter(MemorySettings(), clock)
    await again.load(db)
    assert again.budget("m", context_tokens=4096, reply_tokens=200).usable == after


async def test_silent_truncation_is_found_and_not_calibrated(clock: Any, caplog: Any) -> None:
    meter = Meter(MemorySettings(), clock)
    meter.learn("m", 1000, Usage(prompt_tokens=950))
    meter.remember(6000, "m", 5000)
    meter.learn("another name", 6000, Usage(prompt_tokens=2048))
    assert "cut prompts silently" in caplog.text
    assert meter.context("m", 8192) == 2048
    assert meter.factor("m") < 1.5
    clock.advance(86_401)
    assert meter.context("m", 8192) == 8192


async def test_economical_vocabulary_is_not_taken_for_truncation(clock: Any) -> None:
    text = "Завтра мы идём через перевал к хижине, возьмите воду и дрова. " * 20
    meter = Meter(MemorySettings(), clock)
    meter.remember(estimate(text), "m", least_estimate(text))
    meter.learn("m", estimate(text), Usage(prompt_tokens=int(estimate(text) * 0.5)))
    assert meter.context("m", 8192) == 8192


async def test_refused_prompt_makes_the_next_one_smaller(chat: Any) -> None:
    one = await chat()
    await one.talk(12, settle=False, text="A message number {n} with a good many words in it for size")
    before = await one.ask("Q" * 50, context=8192)
    one.memory.learn_context("fake", 700)
    after = await one.ask("Q" * 50, context=8192)
    assert after.tokens_est < before.tokens_est
    assert after.tokens_est <= 700


def test_reply_reserve_never_eats_the_prompt() -> None:
    assert plan(context_tokens=1024, reply_tokens=5000).usable >= 400
    assert plan(context_tokens=0, reply_tokens=0).usable >= 64
    assert asyncio.iscoroutinefunction(Meter.load)


async def test_what_was_learned_survives_a_kill(chat: Any, db: Database) -> None:
    one = await chat()
    one.memory.learn_usage("fake", 100, Usage(prompt_tokens=150))
    await one.exchange("Hello")
    async with asyncio.timeout(5):
        while not await db.fetch_all("SELECT 1 FROM token_calibration WHERE model = 'fake' AND n = 1"):
            await asyncio.sleep(0)
    one.memory.learn_context("fake", 1024)
    await one.exchange("Hello again")
    async with asyncio.timeout(5):
        while await db.fetch_value("SELECT n_ctx FROM token_calibration") != 1024:
            await asyncio.sleep(0)


async def test_not_every_count_is_a_write(db: Database, clock: Any) -> None:
    meter = Meter(MemorySettings(), clock)
    due = []
    for _ in range(41):
        meter.learn("m", 100, Usage(prompt_tokens=120))
        due.append(meter.is_due)
        if meter.is_due:
            await meter.save(db)
    assert sum(due) == 3
