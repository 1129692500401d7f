"""Who gets no answer for now: hourly rates, and a breaker for two bots that answer each other (DESIGN §3 Limits).

Plain objects that take the time; nothing here sleeps or writes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from meshai.delivery.parts import MORE_HINT

HOUR_S = 3600.0
SAME_TEXT_LIMIT = 5
MARKED_LIMIT = 3
SILENCE_S = 900.0

_PART_MARK = re.compile(r"^\s*[\[(]\d{1,2}(?:/\d{1,2})?[\])]\s|\s[\[(]\d{1,2}/\d{1,2}[\])]\s*$")
_BOT_MARKS = ("m@i- ", "🤖", "[ai]", "[ai?]", "[bot]", "pong: heard you")  # mesh-api, Outpost, our own replies


class Verdict(StrEnum):
    """What to do with a question."""

    GO = "go"
    PERSON_RATE = "person rate"  # this person asked too much in the last hour
    TOTAL_RATE = "total rate"  # everybody together did
    LOOP = "loop"  # another bot: silence


@dataclass(slots=True)
class _Suspicion:
    last_text: str = ""
    same: int = 0
    marked: int = 0
    silent_until: float = 0.0


@dataclass(slots=True)
class Throttle:
    """Hourly rates per person and in all; the loop breaker per node."""

    per_node_per_hour: int
    per_hour: int
    _asked: dict[str, deque[float]] = field(default_factory=dict)
    _all: deque[float] = field(default_factory=deque)
    _suspicions: dict[str, _Suspicion] = field(default_factory=dict)

    def seed(self, asked: Iterable[tuple[str, float]]) -> None:
        """Take over what was asked before a restart: (node id, time)."""
        for node_id, at in asked:
            self._count(node_id, at)

    def judge(self, node_id: str, text: str, now: float) -> Verdict:
        """Decide about one question; a GO counts against the rates."""
        if self._is_loop(node_id, text, now):
            return Verdict.LOOP
        mine = self._asked.setdefault(node_id, deque())
        for times in (mine, self._all):
            _forget_old(times, now)
        if len(mine) >= self.per_node_per_hour:
            return Verdict.PERSON_RATE
        if len(self._all) >= self.per_hour:
            return Verdict.TOTAL_RATE
        self._count(node_id, now)
        self._drop_idle(now)
        return Verdict.GO

    def is_suspicious(self, node_id: str) -> bool:
        """Looks like the beginning of a loop: such answers get one part, so that it costs 8 packets at most."""
        state = self._suspicions.get(node_id)
        return state is not None and (state.same >= 3 or state.marked >= 1)

    def _count(self, node_id: str, at: float) -> None:
        self._asked.setdefault(node_id, deque()).append(at)
        self._all.append(at)

    def _is_loop(self, node_id: str, text: str, now: float) -> bool:
        state = self._suspicions.setdefault(node_id, _Suspicion())
        if now < state.silent_until <= now + SILENCE_S:
            return True
        folded = " ".join(text.split()).casefold()
        state.same = state.same + 1 if folded == state.last_text else 1
        state.last_text = folded
        state.marked = state.marked + 1 if looks_like_bot(text) else 0
        if state.same < SAME_TEXT_LIMIT and state.marked < MARKED_LIMIT:
            return False
        state.same = state.marked = 0
        state.last_text = ""
        state.silent_until = now + SILENCE_S
        return True

    def _drop_idle(self, now: float) -> None:
        if len(self._suspicions) <= 1000:
            return
        idle = [node for node, times in self._asked.items() if not times or now - times[-1] > HOUR_S]
        for node in idle:
            self._asked.pop(node, None)
            self._suspicions.pop(node, None)


def looks_like_bot(text: str) -> bool:
    """Part marks, our own hint, or the marks of known bots; people type none of them."""
    lowered = text.lstrip().casefold()
    return bool(_PART_MARK.search(text)) or lowered.startswith(_BOT_MARKS) or MORE_HINT in text


def _forget_old(times: deque[float], now: float) -> None:
    # A clock that went back leaves times in the future: they must not count for ever.
    while times and not 0 <= now - times[0] < HOUR_S:
        times.popleft()
