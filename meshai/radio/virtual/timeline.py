"""Protocol time: a queue of things to do, run by hand in tests or by the event loop faster than life.

Everything in the virtual mesh happens in callbacks of one timeline, in order of protocol time, so that a seed
gives the same story at any speed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Action = Callable[[], None]


class Timer:
    """Something scheduled, until it ran or was cancelled."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        """Never run it; harmless afterwards."""
        self.action = None


class Timeline:
    """Protocol time that stands still until ``advance`` moves it."""

    speed = 1.0

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Protocol seconds since the start; inside an action, exactly when it was due."""
        return self._now

    def real(self) -> float:
        """Seconds since the start as the clients' clocks count them."""
        return self.now() / self.speed

    def after(self, delay_s: float, action: Action) -> Timer:
        """Run ``action`` in ``delay_s`` protocol seconds."""
        timer = Timer(self.now() + max(0.0, delay_s), action)
        heapq.heappush(self._queue, (timer.at, next(self._order), timer))
        return timer

    def catch_up(self) -> None:
        """Run whatever is already due; call it before acting from outside."""
        self._run(self.now())

    def advance(self, seconds: float) -> None:
        """Let protocol time pass."""
        self._run(self._now + seconds)

    def _run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            at, _, timer = heapq.heappop(self._queue)
            action, timer.action = timer.action, None
            if action is not None:
                self._now = max(self._now, at)
                action()
        self._now = max(self._now, until)


class LoopTimeline(Timeline):
    """Protocol time that follows the event loop's clock, ``speed`` times as fast."""

    def __init__(self, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be positive, not {speed}")
        super().__init__()
        self.speed = speed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._origin = 0.0
        self._wakeup: asyncio.TimerHandle | None = None
        self._running = False

    def start(self) -> None:
        """Let time flow; needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time() - self._now / self.speed
        self._arm()

    def stop(self) -> None:
        """Freeze time."""
        self.catch_up()
        if self._wakeup is not None:
            self._wakeup.cancel()
        self._wakeup = self._loop = None

    def now(self) -> float:
        """Protocol seconds since the start; inside an action, exactly when it was due."""
        if self._loop is None or self._running:
            return self._now
        return max(self._now, (self._loop.time() - self._origin) * self.speed)

    def after(self, delay_s: float, action: Action) -> Timer:
        """Run ``action`` in ``delay_s`` protocol seconds."""
        timer = super().after(delay_s, action)
        if not self._running:
            self._arm()
        return timer

    def _run(self, until: float) -> None:
        if self._running:
            return
        self._running = True
        try:
            super()._run(until)
        finally:
            self._running = False
            self._arm()

    def _arm(self) -> None:
        while self._queue and self._queue[0][2].action is None:
            heapq.heappop(self._queue)
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        if self._loop is not None and self._queue:
            self._wakeup = self._loop.call_at(self._origin + self._queue[0][0] / self.speed, self.catch_up)
