"""How the link has been doing: when to try again, what to suspect, when to give up. Pure; the clock comes in.

Also keeps the log quiet while the node is away: a complaint is written when it is new, then every ten minutes.
"""

from __future__ import annotations

import logging

from meshai.clock import Clock
from meshai.radio.timings import Timings

SUSPICION = (
    "; lost within seconds of connecting several times in a row: another program uses this node "
    "(a phone over WiFi, the web client, the meshtastic command line), or it reboots in a loop"
)
MAX_REASONS = 64
"""Distinct complaints remembered; reasons carry no varying numbers, so this is never reached honestly."""


class Trouble:
    """Counts what goes wrong between two good connections."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._step = 0
        self._brief = 0
        self._connected_at: float | None = None
        self._handshakes_failed = 0
        self._handshakes_failing_since = 0.0
        self.connections = 0
        self.last_error = ""

    def connected(self, now: float) -> None:
        """A handshake succeeded."""
        self._connected_at = now
        self._handshakes_failed = 0
        self.connections += 1

    def is_steady(self, now: float) -> bool:
        """True once a connection has stood for ``steady_s``; earlier trouble is then forgotten."""
        steady = self._connected_at is not None and now - self._connected_at >= self._timings.steady_s
        if steady:
            self._step = 0
            self._brief = 0
        return steady

    def ended(self, reason: str, now: float, *, opened: bool) -> str:
        """A connection or an attempt ended; ``opened`` if the port or socket did open. Gives the full reason."""
        if self._connected_at is not None:
            self.is_steady(now)
            was_brief = now - self._connected_at < self._timings.brief_s
            self._brief = self._brief + 1 if was_brief else 0
            self._connected_at = None
        elif opened:
            if not self._handshakes_failed:
                self._handshakes_failing_since = now
            self._handshakes_failed += 1
        else:
            self._handshakes_failed = 0  # an absent node is healthy (DESIGN §3 Watchdog)
        if opened and self._brief >= self._timings.brief_times:
            reason += SUSPICION
        self.last_error = reason
        return reason

    def delay_s(self, jitter: float) -> float:
        """How long to wait before the next attempt; it doubles each time, up to ``backoff_max_s``."""
        longest = self._timings.backoff_max_s
        delay = min(longest, self._timings.backoff_min_s * float(2 ** min(self._step, 20)))
        self._step += 1
        return min(longest, delay * jitter)

    def hopeless(self, now: float) -> str:
        """Why a node that accepts connections is given up, "" while it is not (DESIGN §3 Watchdog)."""
        enough = self._handshakes_failed >= self._timings.hopeless_times
        if enough and now - self._handshakes_failing_since >= self._timings.hopeless_s:
            return f"{self._handshakes_failed} handshakes failed in a row: {self.last_error}"
        return ""

    def status(self, now: float) -> dict[str, object]:
        """For ``status``; JSON types only."""
        failing = now - self._handshakes_failing_since if self._handshakes_failed else 0.0
        return {
            "connections": self.connections,
            "last_error": self.last_error,
            "handshakes_failed": self._handshakes_failed,
            "handshakes_failing_s": round(failing, 1),
        }


class Complaints:
    """A logger that repeats itself only every ``again_s``, per text."""

    def __init__(self, log: logging.Logger, clock: Clock, again_s: float) -> None:
        self._log = log
        self._clock = clock
        self._again_s = again_s
        self._said: dict[tuple[int, str], float] = {}

    def say(self, level: int, text: str) -> bool:
        """Log ``text`` unless the same was logged a short while ago; then only at DEBUG. True: it was logged."""
        now = self._clock.monotonic()
        last = self._said.get((level, text))
        if last is not None and now - last < self._again_s:
            self._log.debug("again: %s", text)
            return False
        if len(self._said) >= MAX_REASONS:
            self._said.clear()
        self._said[level, text] = now
        self._log.log(level, "%s", text)
        return True

    def forget(self) -> None:
        """All is well again: the next trouble is news."""
        self._said.clear()

    def forget_good_news(self) -> None:
        """A trouble was just logged: so must be its end, however often that was said before."""
        self._said = {said: at for said, at in self._said.items() if said[0] > logging.INFO}
