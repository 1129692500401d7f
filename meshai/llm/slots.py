"""``llm.parallel``: how many requests run at once, who goes first, and who gives way (docs/memory.md §2.3).

Replies go before summaries, summaries before merges. A background call is stopped for a reply only when no slot is
free.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from meshai.errors import ModelTimeoutError, PreemptedError
from meshai.llm.base import Purpose

T = TypeVar("T")
RANK = {purpose: rank for rank, purpose in enumerate(Purpose)}


class Lease:
    """One slot in use."""

    def __init__(self, purpose: Purpose, *, gives_way: bool = True) -> None:
        self.purpose = purpose
        self._gives_way = gives_way
        self.preempted = False
        self._scope: asyncio.Timeout | None = None

    @property
    def can_be_preempted(self) -> bool:
        """Running background work that was not stopped yet."""
        return self.purpose is not Purpose.REPLY and self._gives_way and self._scope is not None and not self.preempted

    async def run(self, work: Awaitable[T]) -> T:
        """Do background work that a waiting reply may stop; then raises PreemptedError."""
        try:
            async with asyncio.timeout(None) as self._scope:
                return await work
        except TimeoutError:
            if self.preempted:
                raise PreemptedError(f"a {self.purpose} call gave way to a reply") from None
            raise
        finally:
            self._scope = None

    def preempt(self) -> None:
        """Stop the work; its slot becomes free when it has ended."""
        assert self._scope is not None
        self.preempted = True
        self._scope.reschedule(asyncio.get_running_loop().time())


class Slots:
    """A semaphore with priorities."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._arrivals = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._running: set[Lease] = set()

    @property
    def busy(self) -> int:
        """Slots in use."""
        return self.count - self._free

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return sum(not future.done() for _, _, future in self._waiting)

    @asynccontextmanager
    async def hold(
        self, purpose: Purpose, timeout_s: float | None = None, *, gives_way: bool = True
    ) -> AsyncIterator[Lease]:
        """Use a slot; waits for one. Raises ModelTimeoutError when none came free in ``timeout_s``."""
        await self._acquire(purpose, timeout_s)
        lease = Lease(purpose, gives_way=gives_way)
        self._running.add(lease)
        try:
            yield lease
        finally:
            self._running.discard(lease)
            self._release()

    async def _acquire(self, purpose: Purpose, timeout_s: float | None) -> None:
        if self._free:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (RANK[purpose], self._arrivals, future))
        if purpose is Purpose.REPLY:
            self._make_room()
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except BaseException as error:  # also on cancellation the slot must not be lost
            if future.done() and not future.cancelled():
                self._release()
            future.cancel()
            if isinstance(error, TimeoutError):
                raise ModelTimeoutError("every slot of llm.parallel was busy for too long") from None
            raise

    def _make_room(self) -> None:
        replies = sum(rank == RANK[Purpose.REPLY] and not future.done() for rank, _, future in self._waiting)
        if replies <= sum(lease.preempted for lease in self._running):
            return
        candidates = [lease for lease in self._running if lease.can_be_preempted]
        if candidates:
            max(candidates, key=lambda lease: RANK[lease.purpose]).preempt()

    def _release(self) -> None:
        while self._waiting:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
