"""Server-sent events: which parts of the page have changed. The browser then asks for the page again.

An event says only what kind of thing changed (``data``, ``state`` or ``log``): nothing needs escaping, and a reader
without JavaScript misses nothing but the freshness.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from meshai.clock import Clock
from meshai.errors import StorageError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
ALIVE_EVERY_S = 15.0
"""A comment this often: a browser that has gone is noticed, proxies keep the line open."""
MOST_STREAMS = 16

Probe = Callable[[], Awaitable[Mapping[str, object]]]


class Live:
    """One look every two seconds for all browsers together, and none while nobody watches."""

    def __init__(self, probe: Probe, clock: Clock) -> None:
        """``probe`` gives for each topic a value that changes when the topic does."""
        self._probe = probe
        self._clock = clock
        self._versions: dict[str, int] = {}
        self._seen: dict[str, object] = {}
        self._changed = asyncio.Condition()
        self._watched = asyncio.Event()
        self._is_closed = False
        self.streams = 0

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self._watched.wait()
            try:
                await self.look()
            except StorageError as error:
                log.debug("the page cannot see what changed: %s", error)
            await self._clock.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Tell every stream what is different from the last look."""
        found = await self._probe()
        changed = [topic for topic, value in found.items() if self._seen.get(topic, value) != value]
        self._seen = dict(found)
        for topic in changed:
            self._versions[topic] = self._versions.get(topic, 0) + 1
        if changed:
            await self._wake()

    async def close(self) -> None:
        """End every stream."""
        self._is_closed = True
        await self._wake()

    def has_room(self) -> bool:
        """One more stream may begin."""
        return self.streams < MOST_STREAMS and not self._is_closed

    async def events(self) -> AsyncIterator[str]:
        """One browser's stream."""
        self.streams += 1
        self._watched.set()
        seen = dict(self._versions)
        try:
            yield "retry: 5000\n\n"
            while not self._is_closed:
                if not await self._wait(seen):
                    yield ": still here\n\n"
                    continue
                topics = [topic for topic, version in self._versions.items() if version != seen.get(topic)]
                seen = dict(self._versions)
                if topics and not self._is_closed:
                    yield f"event: change\ndata: {' '.join(sorted(topics))}\n\n"
        finally:
            self.streams -= 1
            if self.streams == 0:
                self._watched.clear()

    async def _wait(self, seen: Mapping[str, int]) -> bool:
        """False when nothing has changed for a while."""
        try:
            async with asyncio.timeout(ALIVE_EVERY_S), self._changed:
                await self._changed.wait_for(lambda: self._is_closed or self._versions != seen)
        except TimeoutError:
            return False
        return True

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
