"""The six-digit code that proves: whoever sent this DM also sees the operator's screen."""

from __future__ import annotations

import hmac
import re
import secrets
from enum import StrEnum

from meshai.clock import Clock

VALID_S = 300.0
MAX_WRONG = 5
_DIGITS = re.compile(r"^[0-9]{6}$")


class Verdict(StrEnum):
    """What a DM says about the code."""

    NO_CODE = "no code"  # an ordinary text: not a try
    RIGHT = "right"
    WRONG = "wrong"
    UNPROVEN = "unproven"  # six digits in a packet the node did not authenticate: never accepted
    OVER = "over"  # too late, or too many wrong tries, or used


class OneTimeCode:
    """Good for five minutes, for one right answer, and for at most five wrong ones by anybody together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + VALID_S
        self._wrong = 0
        self._used = False
        self.digits = f"{secrets.randbelow(1_000_000):06d}"

    @property
    def left_s(self) -> float:
        """For how long it still counts; 0.0 when it is over."""
        if self._used or self._wrong >= MAX_WRONG:
            return 0.0
        return max(0.0, self._until - self._clock.monotonic())

    def judge(self, text: str, *, authenticated: bool) -> Verdict:
        """Judge one DM. Only a packet authenticated by public key can be right; the rest of its tries count."""
        said = text.strip().replace(" ", "")
        if not _DIGITS.match(said):
            return Verdict.NO_CODE
        if not self.left_s:
            return Verdict.OVER
        is_right = hmac.compare_digest(said.encode("ascii"), self.digits.encode("ascii"))
        if is_right and authenticated:
            self._used = True
            return Verdict.RIGHT
        self._wrong += 1
        if is_right:
            self._used = True  # it went over the air without the key's protection: others may know it now
        return Verdict.WRONG if authenticated else Verdict.UNPROVEN
