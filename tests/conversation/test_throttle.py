"""Hourly rates and the loop breaker (DESIGN §3 Limits; field.md A10: nobody is muted for good)."""

import pytest

from meshai.conversation.throttle import HOUR_S, SILENCE_S, Throttle, Verdict, looks_like_bot


def test_person_over_the_rate_waits_for_the_hour():
    throttle = Throttle(per_node_per_hour=3, per_hour=100)
    verdicts = [throttle.judge("!a", f"question {i}", 10.0 * i) for i in range(4)]
    assert verdicts == [Verdict.GO] * 3 + [Verdict.PERSON_RATE]
    assert throttle.judge("!a", "later", HOUR_S + 1) is Verdict.GO


def test_everybody_together_has_a_rate():
    throttle = Throttle(per_node_per_hour=3, per_hour=4)
    verdicts = [throttle.judge(f"!{i}", "hello", 1.0) for i in range(5)]
    assert verdicts == [Verdict.GO] * 4 + [Verdict.TOTAL_RATE]


def test_seed_counts_what_was_asked_before_a_restart():
    throttle = Throttle(per_node_per_hour=2, per_hour=100)
    throttle.seed([("!a", 1.0), ("!a", 2.0)])
    assert throttle.judge("!a", "x", 3.0) is Verdict.PERSON_RATE


def test_clock_that_went_back_does_not_count_for_ever():
    throttle = Throttle(per_node_per_hour=1, per_hour=100)
    throttle.seed([("!a", 1_800_000_000.0)])
    assert throttle.judge("!a", "x", 60.0) is Verdict.GO


def test_same_text_five_times_is_a_loop_for_a_while():
    throttle = Throttle(per_node_per_hour=100, per_hour=100)
    verdicts = [throttle.judge("!a", "Pong!", float(i)) for i in range(6)]
    assert verdicts == [Verdict.GO] * 4 + [Verdict.LOOP] * 2
    assert throttle.judge("!a", "Pong!", 5 + SILENCE_S) is Verdict.GO


def test_speed_alone_proves_nothing():
    throttle = Throttle(per_node_per_hour=100, per_hour=100)
    assert all(throttle.judge("!a", f"text {i}", 0.1 * i) is Verdict.GO for i in range(50))


def test_another_bots_parts_are_silenced_within_eight_packets():
    throttle = Throttle(per_node_per_hour=100, per_hour=100)
    verdicts = [throttle.judge("!a", f"[{i}/9] part of an answer", float(i)) for i in range(1, 9)]
    assert Verdict.LOOP in verdicts[:8]


@pytest.mark.parametrize("text", ["[1/3] first", "the end (2/3)", "m@i- hello", "🤖 hi", "Long … send !more"])
def test_marks_of_bots_are_recognised(text):
    assert looks_like_bot(text)


@pytest.mark.parametrize(
    "text", ["I walked 2/3 of the way", "[sic] he wrote", "meshai can you help?", "list [1] and [2]"]
)
def test_people_are_not_taken_for_bots(text):
    assert not looks_like_bot(text)
