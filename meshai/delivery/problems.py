"""What the operator should know about deliveries: each refusal once an hour in the log, the latest in ``status``."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from meshai.clock import Clock
from meshai.delivery.naks import advice

log = logging.getLogger(__name__)

LOG_EVERY_S = 3600.0
SHOWN_FOR_S = 86400.0
MOST = 50


@dataclass(slots=True)
class Problem:
    """One kind of refusal from one node."""

    text: str
    times: int
    last_at: float
    logged_at: float


class Problems:
    """Collects refusals; bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[tuple[str, str], Problem] = {}

    def note(self, node: str, reason: str) -> None:
        """A packet to this node was refused for this reason."""
        text = advice(reason, node)
        if not text:
            return
        now = self._clock.monotonic()
        problem = self._found.pop((node, reason), None)
        if problem is None or now - problem.logged_at >= LOG_EVERY_S:
            log.warning("%s: %s", reason, text)
            problem = Problem(text, problem.times if problem else 0, now, now)
        problem.times += 1
        problem.last_at = now
        self._found[node, reason] = problem
        while len(self._found) > MOST:
            del self._found[next(iter(self._found))]

    def listed(self) -> list[dict[str, object]]:
        """The last day's refusals, the newest first; JSON types only."""
        now = self._clock.monotonic()
        return [
            {"node": node, "reason": reason, "advice": p.text, "times": p.times, "seconds_ago": round(now - p.last_at)}
            for (node, reason), p in reversed(self._found.items())
            if now - p.last_at < SHOWN_FOR_S
        ]
