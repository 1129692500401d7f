"""The six-digit code: five minutes, five wrong tries, only in a packet the node authenticated."""

import pytest

from meshai.setup.code import MAX_WRONG, OneTimeCode, Verdict


class Clock:
    def __init__(self):
        self.at = 1000.0

    def monotonic(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def code(clock):
    return OneTimeCode(clock)


def wrong(code):
    return f"{(int(code.digits) + 1) % 1_000_000:06d}"


def test_code_is_six_digits_and_random(clock):
    codes = {OneTimeCode(clock).digits for _ in range(50)}
    assert len(codes) > 40
    assert all(len(each) == 6 and each.isdigit() for each in codes)


@pytest.mark.parametrize("typed", ["{}", " {} ", "{}\n"])
def test_right_code_counts_once(code, typed):
    assert code.judge(typed.format(code.digits), authenticated=True) is Verdict.RIGHT
    assert code.judge(code.digits, authenticated=True) is Verdict.OVER
    assert code.left_s == 0


def test_phone_may_group_the_digits(code):
    assert code.judge(f"{code.digits[:3]} {code.digits[3:]}", authenticated=True) is Verdict.RIGHT


def test_unauthenticated_code_is_never_accepted_and_spent(code):
    assert code.judge(code.digits, authenticated=False) is Verdict.UNPROVEN
    assert code.judge(code.digits, authenticated=True) is Verdict.OVER


def test_code_ends_after_five_minutes(code, clock):
    clock.at += 299
    assert code.left_s == 1
    clock.at += 1
    assert code.judge(code.digits, authenticated=True) is Verdict.OVER


def test_code_ends_after_five_wrong_tries_of_anybody(code):
    for number in range(MAX_WRONG):
        expected = Verdict.WRONG if number % 2 else Verdict.UNPROVEN
        assert code.judge(wrong(code), authenticated=bool(number % 2)) is expected
    assert code.judge(code.digits, authenticated=True) is Verdict.OVER


@pytest.mark.parametrize("text", ["hello", "", "12345", "1234567", "１２３４５６", "12345a", "!help", "\x00" * 6])
def test_ordinary_text_is_no_try(code, text):
    for _ in range(10):
        assert code.judge(text, authenticated=True) is Verdict.NO_CODE
    assert code.judge(code.digits, authenticated=True) is Verdict.RIGHT
