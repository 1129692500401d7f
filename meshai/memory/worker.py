"""When background work runs: after a conversation has been quiet, one job at a time, giving way to answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from meshai.clock import Clock
from meshai.errors import MeshAIError

log = logging.getLogger(__name__)

STEPS_IN_A_ROW = 50
"""Jobs of one conversation before the others get their turn."""
RETRY_S = 60.0
"""A conversation whose work could not be done is looked at again after this."""

Step = Callable[[int, bool], Awaitable[bool]]
"""Do the next thing for a conversation (asked for by hand?); True when there may be more."""


class Worker:
    """A queue of conversations with the time at which each is due."""

    def __init__(self, step: Step, clock: Clock, *, parallel: int = 1) -> None:
        self._step = step
        self._clock = clock
        self._parallel = parallel
        self._due: dict[int, float] = {}
        self._manual: set[int] = set()
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._answers = 0
        self._job: asyncio.Task[bool] | None = None
        self._current: int | None = None
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop().create_task(self._run(), name="memory")

    async def stop(self) -> None:
        """Cancel what runs; nothing is left half-done."""
        for task in (self._loop, self._job):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._loop = None

    def schedule(self, conv_id: int, after_s: float, *, manual: bool = False) -> None:
        """Look at a conversation after this much quiet; an earlier appointment moves."""
        if manual:
            self._manual.add(conv_id)
        self._due[conv_id] = self._clock.monotonic() + after_s
        self._wake.set()

    def forget(self, conv_id: int) -> None:
        """Drop a conversation's appointment."""
        self._due.pop(conv_id, None)
        self._manual.discard(conv_id)

    @property
    def waiting(self) -> int:
        """Conversations with an appointment."""
        return len(self._due)

    @contextlib.contextmanager
    def answering(self, may_interrupt: Callable[[int], bool]) -> Iterator[None]:
        """While an answer needs the model: no new background call, and a running one is cancelled if no slot is free.

        ``may_interrupt`` is asked with the conversation whose job runs.
        """
        self._answers += 1
        try:
            running = self._answers >= self._parallel and self._job is not None and self._current is not None
            if running and may_interrupt(self._current or 0) and self._job is not None:
                self._job.cancel()
            yield
        finally:
            self._answers -= 1
            self._wake.set()

    async def run_due(self, *, now: float | None = None) -> int:
        """Do everything that is due, and what that makes due; returns the number of steps. For the loop and tests."""
        async with self._one_at_a_time:
            moment = self._clock.monotonic() if now is None else now
            done = 0
            for conv_id in [key for key, due in self._due.items() if due <= moment]:
                self._due.pop(conv_id, None)
                done += await self._work_on(conv_id)
            return done

    async def _work_on(self, conv_id: int) -> int:
        for count in range(STEPS_IN_A_ROW):
            if self._answers >= self._parallel:
                self._due.setdefault(conv_id, self._clock.monotonic())
                return count
            self._current = conv_id
            self._job = asyncio.get_running_loop().create_task(self._guarded(conv_id))
            try:
                more = await self._job
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                self._due.setdefault(conv_id, self._clock.monotonic())  # gave way to an answer: right after it
                return count
            finally:
                self._job = self._current = None
            if not more:
                self._manual.discard(conv_id)
                return count
        self.schedule(conv_id, 0.0)
        return STEPS_IN_A_ROW

    async def _guarded(self, conv_id: int) -> bool:
        try:
            return await self._step(conv_id, conv_id in self._manual)
        except MeshAIError as error:
            log.warning("memory: background work failed: %s", error)
            self._due.setdefault(conv_id, self._clock.monotonic() + RETRY_S)
            return False

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._answers < self._parallel:
                await self.run_due()
            await self._pause()

    async def _pause(self) -> None:
        """Until the next appointment, or until something changes."""
        if not self._due or self._answers >= self._parallel:
            await self._wake.wait()
            return
        wait_s = max(min(self._due.values()) - self._clock.monotonic(), 0.0)
        sleep = asyncio.ensure_future(self._clock.sleep(wait_s))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({sleep, wake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            wake.cancel()
            # Not by suppressing CancelledError: that would swallow a stop() which comes while we wait here.
            await asyncio.gather(sleep, wake, return_exceptions=True)
