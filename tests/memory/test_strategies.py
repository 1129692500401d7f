"""The worked examples of the source designs, and each strategy's own trigger and raw tail (docs/memory.md §2.3a)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from meshai.memory.strategies import STRATEGIES, make
from meshai.memory.strategies.base import Link, Rules, Turn, View, cut, tail_of_pairs
from meshai.memory.strategies.progressive import word_target
from meshai.memory.strategies.sliding import summary_range
from meshai.storage import summaries

RULES = Rules(window_tokens=100_000, chain_tokens=10_000)


def turns(count: int, start: int = 0, tokens: int = 20) -> list[Turn]:
    """Questions and answers in turn, numbered from ``start``."""
    return [Turn(seq, seq % 2 == 0, tokens) for seq in range(start, start + count)]


def view(window: list[Turn], chain: list[Link] | None = None, past: list[Turn] | None = None) -> View:
    anchor = window[0].seq if window else 0
    return View(0, anchor, chain or [], window, past or [])


def links(*levels: int) -> list[Link]:
    return [Link(n + 1, level, n * 10, n * 10 + 9, 50) for n, level in enumerate(levels)]


# --- S0 ---------------------------------------------------------------------------------------------------------------


def test_s0_5_short_history_is_not_summarised() -> None:
    assert not make("rolling").due(view(turns(8)), RULES)
    assert make("rolling").plan(view(turns(8)), RULES) is None


def test_s0_3_eight_messages_beyond_the_window_trigger() -> None:
    rolling = make("rolling")
    assert not rolling.due(view(turns(14)), RULES)
    assert rolling.due(view(turns(16)), RULES)


def test_s0_example_messages_one_to_ten_and_eleven_to_eighteen() -> None:
    job = make("rolling").plan(view(turns(18)), RULES)
    assert job is not None
    assert (job.start_seq, job.end_seq) == (0, 9)


def test_s0_7_next_version_covers_old_summary_and_new_messages() -> None:  # Z-M3
    job = make("rolling").plan(view(turns(16, 10), [Link(1, 1, 0, 9, 40)]), RULES)
    assert job is not None
    assert (job.start_seq, job.end_seq, job.read_from, job.sources, job.version) == (0, 17, 10, (1,), 2)


def test_s0_4_min_messages_is_enforced() -> None:
    rules = Rules(window_tokens=100_000, chain_tokens=10_000, window_pairs=1, min_messages=30, compact_every=2)
    assert not make("rolling").due(view(turns(20)), rules)
    assert make("rolling").due(view(turns(30)), rules)


async def test_s0_22_forty_messages_few_are_sent(chat: Any) -> None:
    one = await chat(strategy="rolling")
    await one.talk(20)
    prompt = await one.ask("Question")
    assert prompt.window <= 16
    assert "Earlier in this conversation" in prompt.messages[0].content


# --- S1 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last_seq", "expected"), [(5, (0, 5)), (13, (0, 13)), (15, (2, 15)), (19, (6, 19))])
def test_s1_14_range_table(last_seq: int, expected: tuple[int, int]) -> None:
    rows = summary_range(turns(last_seq + 1), 14)
    assert (rows[0].seq, rows[-1].seq) == expected


def test_s1_6_starts_after_the_third_round() -> None:
    assert not make("sliding").due(view(turns(4)), RULES)
    assert make("sliding").due(view(turns(6)), RULES)


def test_s1_9_lost_answers_do_not_split_a_pair() -> None:
    window = [Turn(0, True, 5), Turn(1, True, 5), Turn(2, False, 5), Turn(3, True, 5), Turn(4, False, 5)]
    assert [turn.seq for turn in summary_range(window, 4)] == [1, 2, 3, 4]
    assert [turn.seq for turn in summary_range(window, 3)] == [3, 4]


async def test_s1_chain_table(chat: Any) -> None:
    """The evolution printed in the source: ranges, base of each version, only one in force."""
    one = await chat(strategy="sliding")
    for rounds, expected in ((3, (0, 5)), (2, (0, 9)), (2, (0, 13)), (1, (2, 15)), (2, (6, 19))):
        await one.talk(rounds, settle=False)
        await one.memory.settle()
        newest = (await summaries.every(one.db, one.id))[-1]
        assert (newest.start_seq, newest.end_seq) == expected
    nodes = await summaries.every(one.db, one.id)
    assert [node.base_id for node in nodes] == [None, *(node.id for node in nodes[:-1])]
    assert [node.status for node in nodes] == ["completed"] * 5
    assert len(await summaries.chain(one.db, one.id, 0)) == 1


async def test_s1_15_gap_is_raw_and_s1_16_no_memory_yet(chat: Any) -> None:
    one = await chat(strategy="sliding")
    await one.talk(3, settle=False)
    assert (await one.ask("Q")).window == 6
    await one.memory.settle()
    assert (await one.ask("Q")).window == 0
    await one.talk(1, settle=False)
    assert (await one.ask("Q")).window == 2


async def test_s1_19_what_slid_out_leaves_the_summary_but_not_recall(chat: Any) -> None:
    one = await chat(strategy="sliding")
    await one.exchange("The cache code is ZEBRA77")
    await one.talk(10, text="Word {n} about the Hut {n}")
    assert "ZEBRA77" not in await one.memory.summary_text(one.id)
    assert any("ZEBRA77" in hit.text for hit in await one.memory.recall(one.id, "cache code"))


async def test_s1_27_and_s1_28_log_lines(chat: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG, logger="meshai.memory")
    one = await chat(strategy="sliding")
    await one.talk(8, settle=False)
    await one.memory.settle()
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", f"Summarized messages 2-15 for {one.key} in 0ms") in messages
    assert ("INFO", f"Sliding window: dropping seq 0-1 for {one.key}") in messages
    assert ("DEBUG", "Memory 1 status updated to processing") in messages
    assert ("DEBUG", "Memory 1 status updated to completed") in messages
    assert ("DEBUG", "Using summary + 14 recent messages (total history: 15)") in messages  # S0-18
    assert not [text for _, text in messages if "Hut" in text]


# --- S3 ---------------------------------------------------------------------------------------------------------------


def test_s3_13_only_user_turns_count() -> None:
    tiered = make("tiered")
    assert not tiered.due(view(turns(26)), RULES)
    assert tiered.due(view(turns(28)), RULES)


def test_s3_15_five_oldest_become_one_of_the_next_level() -> None:
    tiered = make("tiered")
    assert tiered.merge(view(turns(2, 50), links(1, 1, 1, 1, 1)), RULES) is None
    job = tiered.merge(view(turns(2, 60), links(1, 1, 1, 1, 1, 1)), RULES)
    assert job is not None
    assert (job.sources, job.level, job.start_seq, job.end_seq) == ((1, 2, 3, 4, 5), 2, 0, 49)


def test_s3_15_levels_go_on_upward() -> None:
    job = make("tiered").merge(view(turns(2, 60), links(2, 2, 2, 2, 2, 2)), RULES)
    assert job is not None
    assert job.level == 3


def test_s3_16_no_more_than_ten_in_all() -> None:
    job = make("tiered").merge(view(turns(2, 110), links(3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1)), RULES)
    assert job is not None
    assert job.sources == (4, 5, 6, 7, 8)


async def test_s3_progression_six_summaries_become_two(chat: Any) -> None:
    one = await chat(strategy="tiered", compact_every=10, context_budget=8000)
    one.model.context = 16_000
    for n in range(64):
        await one.exchange(f"Message {n} about Hut {n}", context=16_000)
        await one.memory.settle()
    status = await one.memory.status(one.id)
    assert (status.summaries, status.max_level) == (2, 2)
    assert await one.problems() == []


async def test_s3_14_archived_messages_stay_readable(chat: Any) -> None:
    one = await chat(strategy="tiered", compact_every=2, window_pairs=1, tuning={"min_messages": 2})
    await one.talk(3)
    rows = await one.db.fetch_all("SELECT content, is_active, chunk_id FROM message_archive ORDER BY sequence_number")
    assert [row["is_active"] for row in rows] == [0, 0, 0, 0, 1, 1]
    assert [row["chunk_id"] for row in rows] == [1, 1, 1, 1, None, None]


# --- S4 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "words"),
    [(1, (100, 150)), (2, (200, 250)), (3, (300, 350)), (4, (400, 450)), (5, (500, 750)), (9, (500, 750))],
)
def test_s4_10_words_by_version(version: int, words: tuple[int, int]) -> None:
    assert word_target(version) == words


def test_s4_2_and_s4_3_threshold_and_kept_tokens() -> None:
    progressive = make("progressive")
    assert not progressive.due(view(turns(30, tokens=100)), RULES)
    assert progressive.due(view(turns(32, tokens=100)), RULES)
    job = progressive.plan(view(turns(32, tokens=100)), RULES)
    assert job is not None
    assert 31 - job.end_seq == 24  # 2 400 of 2 500 tokens: an answer stays with its question


def test_s4_2_small_budget_scales_down() -> None:
    small = Rules(window_tokens=800, chain_tokens=200, other_tokens=100)
    assert make("progressive").due(view(turns(30, tokens=20)), small)
    job = make("progressive").plan(view(turns(30, tokens=20)), small)
    assert job is not None
    assert (29 - job.end_seq) * 20 <= 800 * 7 // 10


# --- shared -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_compact_every_overrides_the_own_trigger(name: str) -> None:
    rules = Rules(window_tokens=100_000, chain_tokens=10_000, compact_every=30)
    assert not make(name).due(view(turns(58)), rules)
    assert make(name).due(view(turns(70)), rules)


@pytest.mark.parametrize("name", ["tiered", "rolling", "progressive"])
def test_filling_window_triggers_whatever_the_turns(name: str) -> None:
    rules = Rules(window_tokens=600, chain_tokens=100, compact_every=500)
    assert make(name).due(view(turns(28)), rules)


def test_small_window_waits_for_a_batch_worth_a_call() -> None:
    rules = Rules(window_tokens=200, chain_tokens=100, read_tokens=1000)
    assert not make("tiered").due(view(turns(10)), rules)
    assert make("tiered").due(view(turns(10)), Rules(window_tokens=200, chain_tokens=100, read_tokens=100))


def test_cut_is_before_a_question() -> None:
    assert [turn.seq for turn in cut(turns(10), 3, 10_000)] == [0, 1, 2, 3, 4, 5]


def test_one_oversized_message_does_not_stop_compaction() -> None:
    window = [Turn(0, True, 50_000), *turns(9, 1)]
    assert [turn.seq for turn in cut(window, 2, 1000)] == [0]


def test_too_many_for_one_request_are_taken_in_blocks_of_sixteen() -> None:
    assert len(cut(turns(100), 8, 400)) == 16


def test_tail_of_pairs_counts_questions() -> None:
    window = [Turn(0, True, 1), Turn(1, False, 1), Turn(2, True, 1), Turn(3, True, 1), Turn(4, False, 1)]
    assert tail_of_pairs(window, 2) == 3
    assert tail_of_pairs(window, 9) == 5


@pytest.mark.parametrize("first", sorted(STRATEGIES))
@pytest.mark.parametrize("second", sorted(STRATEGIES))
async def test_switching_strategy_loses_nothing(chat: Any, first: str, second: str) -> None:
    one = await chat(strategy=first)
    await one.talk(20)
    before = await one.conv()
    settings = one.memory._ctx.settings
    one.memory.reconfigure(settings.model_copy(update={"strategy": second}))
    await one.talk(20, text="Later {n} about Hut {n}")
    assert await one.problems() == []
    one.memory.reconfigure(settings)
    await one.talk(2, text="Again {n}")
    assert await one.problems() == []
    conv = await one.conv()
    assert conv.next_seq == before.next_seq + 44
    if first != "sliding":
        chain = await summaries.chain(one.db, one.id, 0)
        assert chain[0].start_seq == 0
