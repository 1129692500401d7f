"""The automatic daily copy of the database, with rotation (``storage.daily_copies``)."""

from __future__ import annotations

import asyncio
import calendar
import logging
import time
from collections.abc import Callable
from pathlib import Path

from meshai.clock import Clock
from meshai.errors import DatabaseCorruptError, MeshAIError
from meshai.storage import backup, recover

log = logging.getLogger(__name__)

EVERY_S = 86_400.0
LOOK_EVERY_S = 900.0
FIRST_AFTER_S = 300.0
"""Not while the daemon starts: connecting and resuming come first."""
PLAUSIBLE_TIME = 1_735_689_600
"""2025-01-01: before that the clock is wrong, and names would not sort."""


class DailyCopies:
    """Makes a copy when the newest is a day old, and keeps the newest ``keep()`` of them."""

    def __init__(self, database: Path, clock: Clock, *, keep: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._keep = keep
        self._ended = False
        self.problem = ""

    async def run(self) -> None:
        """For ever. A copy that fails is a warning and is tried again; the daemon does not depend on it."""
        await asyncio.to_thread(_remove_unfinished, self._database)
        await self._clock.sleep(FIRST_AFTER_S)
        try:
            while True:
                if self._keep() and self._is_due():
                    await asyncio.to_thread(self.make)
                await self._clock.sleep(LOOK_EVERY_S)
        finally:
            self._ended = True  # a copy in the making must not hold up the end of the program

    def make(self) -> Path | None:
        """Make a copy now and remove those too many; None when it failed, with ``problem`` saying why. Blocking."""
        target = recover.daily_name(self._database, self._clock.now())
        try:
            facts = backup.copy(self._database, target, owner=self._database.stat(), go_on=lambda: not self._ended)
        except DatabaseCorruptError as error:
            self._failed(f"the database is damaged, the daily copies are kept: {error}", logging.ERROR)
            return None
        except (MeshAIError, OSError) as error:
            self._failed(f"no daily copy of the database: {error}", logging.WARNING)
            return None
        self.problem = ""
        log.info("copied the database to %s (%d messages)", target, facts.messages)
        for old in recover.daily_copies(self._database)[self._keep() :]:
            old.unlink(missing_ok=True)
        return target

    def _is_due(self) -> bool:
        now = self._clock.now()
        if now < PLAUSIBLE_TIME:
            return False
        made = [_made_at(copy) for copy in recover.daily_copies(self._database)]
        # One from the future was made while the clock was wrong: it says nothing about today.
        newest = max((at for at in made if at <= now), default=0.0)
        return now - newest >= EVERY_S

    def _failed(self, problem: str, level: int) -> None:
        if problem != self.problem:
            log.log(level, "%s", problem)
        self.problem = problem


def _remove_unfinished(database: Path) -> None:
    """What a power cut left of a copy."""
    for path in database.parent.glob(f"{database.name}.{recover.DAILY}-*{backup.PARTIAL}"):
        path.unlink(missing_ok=True)


def _made_at(copy: Path) -> float:
    """When a copy was made, by its name; 0.0 when it does not say."""
    try:
        return float(calendar.timegm(time.strptime(copy.name.rpartition(f".{recover.DAILY}-")[2], "%Y%m%d-%H%M%S")))
    except ValueError:
        return 0.0
