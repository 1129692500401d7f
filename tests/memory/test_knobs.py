"""Every knob of memory and memory.tuning changes something (DESIGN §4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshai.config.model import Memory, Tuning
from meshai.storage import summaries


async def first_request(one: Any) -> Any:
    await one.talk(20, settle=False)
    await one.memory.settle()
    return one.model.requests[0]


async def test_summary_temperature_and_tokens(chat: Any) -> None:
    one = await chat(tuning={"summary_temperature": 0.9, "summary_max_tokens": 77})
    request = await first_request(one)
    assert (request.temperature, request.max_tokens) == (0.9, 77)


async def test_default_summary_tokens_are_at_least_160(chat: Any) -> None:
    request = await first_request(await chat(facts=False, tuning={"summary_words": 20}))
    assert request.max_tokens == 160


async def test_summary_words(chat: Any) -> None:
    request = await first_request(await chat(strategy="rolling", tuning={"summary_words": 44}))
    assert "Write 22-44 words" in request.messages[0].content


async def test_prompt_file(chat: Any, tmp_path: Path) -> None:  # S2-6
    (tmp_path / "own.txt").write_text("Sum it up like a pirate in {most} words.")
    one = await chat(tuning={"prompt_file": str(tmp_path / "own.txt")})
    await one.memory.start()
    request = await first_request(one)
    assert request.messages[0].content.startswith("Sum it up like a pirate in ")
    assert "{most}" not in request.messages[0].content


async def test_missing_prompt_file_is_told_and_ignored(chat: Any, caplog: Any) -> None:
    one = await chat(tuning={"prompt_file": "/nowhere/own.txt"})
    await one.memory.start()
    assert "prompt_file" in caplog.text
    assert "Summarise" in (await first_request(one)).messages[0].content


@pytest.mark.parametrize(
    ("knobs", "early", "late"),
    [
        ({"tuning": {"soft_percent": 10}}, {}, 12),
        ({"compact_every": 2, "tuning": {"min_messages": 2}}, {}, 8),
        ({"compact_every": 2, "window_pairs": 1, "tuning": {"min_messages": 2}}, {}, 4),
        ({"strategy": "sliding"}, {}, 4),
    ],
    ids=["soft_percent", "compact_every", "window_pairs", "strategy"],
)
async def test_triggers_earlier(chat: Any, knobs: dict[str, Any], early: dict[str, Any], late: int) -> None:
    usual = await chat(**early, node="!00000001", compact_every=500)
    await usual.talk(late, text="Message {n} with quite a few words about Hut {n} and the way " * 2)
    assert (await usual.memory.status(usual.id)).summaries == 0
    one = await chat(**knobs, node="!00000002")
    await one.talk(late, text="Message {n} with quite a few words about Hut {n} and the way " * 2)
    assert (await one.memory.status(one.id)).summaries > 0


@pytest.mark.parametrize(("percent", "digested"), [(25, True), (100, False)])
async def test_hard_percent(chat: Any, percent: int, digested: bool) -> None:
    one = await chat(tuning={"hard_percent": percent, "soft_percent": 20})
    for n in range(13):
        await one.exchange(f"Message {n} with quite a few words about Hut {n}", context=4096)
    assert ((await one.memory.status(one.id)).summaries > 0) is digested


@pytest.mark.parametrize(("knobs", "most"), [({"max_level1": 2}, 5), ({"max_level1": 3, "max_active": 3}, 3)])
async def test_merging_knobs(chat: Any, knobs: dict[str, int], most: int) -> None:
    one = await chat(compact_every=2, window_pairs=1, context_budget=100_000, tuning={"min_messages": 2, **knobs})
    one.model.context = 100_000
    for n in range(24):
        await one.exchange(f"Message {n} about Hut {n}", context=100_000)
        await one.memory.settle()
    assert len(await summaries.chain(one.db, one.id, 0)) <= most


async def test_sliding_window(chat: Any) -> None:
    one = await chat(strategy="sliding", sliding_window=6)
    await one.talk(10)
    node = (await summaries.chain(one.db, one.id, 0))[0]
    assert (node.start_seq, node.end_seq) == (14, 19)


async def test_min_messages(chat: Any) -> None:
    one = await chat(compact_every=1, window_pairs=1, tuning={"min_messages": 30})
    await one.talk(14)
    assert one.model.requests == []
    await one.talk(2)
    assert len(one.model.requests) > 0


async def test_recall_off(chat: Any) -> None:
    one = await chat(recall=False)
    await one.exchange("The key of Hut ZX77 hangs behind the woodpile")
    await one.talk(20)
    assert (await one.ask("Where does the key of Hut ZX77 hang?")).recalled == ()


async def test_token_counter(chat: Any) -> None:
    assert (await chat(token_counter="estimate")).memory._ctx.meter._counter._mode == "estimate"


async def test_per_conversation_trigger_and_switch(chat: Any) -> None:  # S3-21, S3-23
    one = await chat()
    await one.db.transaction(lambda tx: one.memory.set_compact_every(tx, one.id, 2))
    with pytest.raises(ValueError, match="1 to 500"):
        await one.db.transaction(lambda tx: one.memory.set_compact_every(tx, one.id, 501))
    await one.talk(7)
    status = await one.memory.status(one.id)
    assert (status.compact_every, status.summaries) == (2, 1)
    await one.db.transaction(lambda tx: one.memory.set_enabled(tx, one.id, enabled=False))
    assert not (await one.memory.status(one.id)).enabled
    assert (await one.ask("Q")).chain == 0
    await one.db.transaction(lambda tx: one.memory.set_enabled(tx, one.id, enabled=True))
    assert (await one.ask("Q")).chain == 1


async def test_status_of_s3_22(chat: Any) -> None:
    one = await chat()
    await one.talk(16)
    await one.exchange("My callsign is DL1ABC")
    await one.memory.facts(one.id)
    status = await one.memory.status(one.id)
    assert (status.enabled, status.strategy, status.messages, status.archived) == (True, "tiered", 34, 20)
    assert (status.since_last, status.summaries, status.max_level, status.facts) == (14, 1, 1, 1)
    assert status.last_failure == ""
    assert 0 < status.retention <= 1


def test_no_knob_is_forgotten_here() -> None:
    tested = {"auto", "min_messages", "soft_percent", "hard_percent", "max_level1", "max_active", "summary_words",
              "summary_max_tokens", "summary_temperature", "prompt_file", "base_url", "shares"}  # fmt: skip
    assert set(Tuning.model_fields) == tested
    assert set(Memory.model_fields) == {
        "enabled", "strategy", "window_pairs", "compact_every", "idle_s", "sliding_window", "context_budget", "model",
        "facts", "recall", "token_counter", "retention_days", "tuning",
    }  # fmt: skip
