"""When to try again, what to suspect, when to give up, and what to log."""

import logging

import pytest

from meshai.radio.timings import Timings
from meshai.radio.trouble import Complaints, Trouble


@pytest.fixture
def trouble():
    return Trouble(Timings())


def test_backoff_doubles_up_to_its_cap(trouble):
    assert [trouble.delay_s(1.0) for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert trouble.delay_s(1.25) == 30.0


def test_backoff_survives_months_of_absence(trouble):
    """A1, A2: retrying never becomes a hot loop."""
    assert min(trouble.delay_s(0.75) for _ in range(100_000)) >= 0.75


def test_steady_connection_resets_the_backoff(trouble):
    for _ in range(6):
        trouble.delay_s(1.0)
    trouble.connected(0.0)
    trouble.ended("EOF", 3600.0, opened=True)
    assert trouble.delay_s(1.0) == 1.0


def test_brief_connections_keep_the_backoff(trouble):
    for _ in range(4):
        trouble.connected(0.0)
        trouble.ended("EOF", 2.0, opened=True)
        last = trouble.delay_s(1.0)
    assert last == 8.0


def test_two_programs_fighting_is_named(trouble):
    reasons = []
    for start in (0.0, 10.0, 20.0):
        trouble.connected(start)
        reasons.append(trouble.ended("the node closed the connection", start + 1.0, opened=True))
    assert "another program" not in reasons[1]
    assert "another program uses this node" in reasons[2]


def test_absent_node_is_never_hopeless(trouble):
    for second in range(0, 100_000, 30):
        trouble.ended("refused", float(second), opened=False)
    assert trouble.hopeless(100_000.0) == ""


def test_ten_failed_handshakes_over_fifteen_minutes_are_hopeless(trouble):
    for number in range(10):
        trouble.ended("silent", number * 90.0, opened=True)
        assert trouble.hopeless(number * 90.0) == ""
    assert trouble.hopeless(900.0) == "10 handshakes failed in a row: silent"
    assert trouble.status(900.0)["handshakes_failed"] == 10


def test_ten_quick_failures_are_not_hopeless_yet(trouble):
    for number in range(20):
        trouble.ended("silent", float(number), opened=True)
    assert trouble.hopeless(20.0) == ""


def test_one_handshake_forgives_all(trouble):
    for number in range(20):
        trouble.ended("silent", number * 90.0, opened=True)
    trouble.connected(2000.0)
    assert trouble.hopeless(9999.0) == ""


class Hands:
    now_s = 0.0

    def monotonic(self):
        return self.now_s


def test_same_complaint_is_logged_every_ten_minutes(caplog):
    clock = Hands()
    complaints = Complaints(logging.getLogger("meshai.test"), clock, 600.0)
    caplog.set_level(logging.WARNING)
    for second in range(0, 1801, 30):
        clock.now_s = float(second)
        complaints.say(logging.WARNING, "refused")
    assert len(caplog.records) == 4


def test_changed_reason_is_logged_at_once(caplog):
    complaints = Complaints(logging.getLogger("meshai.test"), Hands(), 600.0)
    caplog.set_level(logging.WARNING)
    for reason in ("refused", "silent", "refused", "silent", "%s{}"):
        complaints.say(logging.WARNING, reason)
    assert [record.getMessage() for record in caplog.records] == ["refused", "silent", "%s{}"]


def test_end_of_a_logged_trouble_is_logged(caplog):
    complaints = Complaints(logging.getLogger("meshai.test"), Hands(), 600.0)
    caplog.set_level(logging.INFO)
    for _ in range(3):
        complaints.say(logging.INFO, "connected")
        if complaints.say(logging.WARNING, "lost"):
            complaints.forget_good_news()
    assert [record.getMessage() for record in caplog.records] == ["connected", "lost", "connected"]


def test_memory_of_complaints_is_bounded():
    complaints = Complaints(logging.getLogger("meshai.test"), Hands(), 600.0)
    for number in range(1000):
        complaints.say(logging.DEBUG, str(number))
    assert len(complaints._said) <= 64
