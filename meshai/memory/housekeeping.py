"""Slow care while nobody waits: indexes, old questions, retention, and erasures a crash cut short."""

from __future__ import annotations

import asyncio
import logging

from meshai.errors import StorageError
from meshai.memory import erase
from meshai.memory.context import Context
from meshai.storage import prune, search_index, summaries
from meshai.storage.database import Transaction

log = logging.getLogger(__name__)

EVERY_S = 6 * 3600.0
RETRY_S = 5.0
DAY_S = 86_400.0
DRIFT_CHECK_ROWS = 200_000
"""Counting more rows than this at every start would keep a Pi busy for seconds: then only once a day."""


class Housekeeper:
    """Runs at the start and every six hours."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """For ever; errors of the database are logged and tried again next time."""
        self.task = asyncio.current_task()
        while True:
            try:
                if await erase.is_pending(self._ctx.db):
                    await self.finish_erasure()
                await self.once()
            except StorageError as error:
                log.warning("housekeeping: %s", error)
            await self._ctx.clock.sleep(EVERY_S)

    async def once(self) -> None:
        """One round."""
        now = self._ctx.clock.now()
        await self._check_indexes()
        await self._ctx.db.transaction(lambda tx: self._tidy(tx, now))

    async def finish_erasure(self, *, attempts: int | None = None) -> bool:
        """Clean the file after an erasure, again and again until no other process holds the log."""
        count = 0
        while True:
            try:
                if await erase.finish(self._ctx.db):
                    return True
            except StorageError as error:
                log.warning("erasing: %s", error)
            count += 1
            if attempts is not None and count >= attempts:
                return False
            await self._ctx.clock.sleep(RETRY_S)

    async def _check_indexes(self) -> None:
        for index in search_index.INDEXES:
            indexed, rows = await search_index.counts(self._ctx.db, index)
            if indexed != rows:
                log.warning("the search index %s has %d of %d rows; making it anew", index, max(indexed, 0), rows)
                await self._ctx.db.transaction(lambda tx, index=index: search_index.rebuild(tx, index))  # type: ignore[misc]

    async def _tidy(self, tx: Transaction, now: float) -> None:
        await summaries.repair(tx, self._ctx.boot_id, now)
        await erase.drop_blank_questions(tx, now=now)
        days = self._ctx.settings.retention_days
        traffic_days = min(days or prune.TRAFFIC_DAYS, prune.TRAFFIC_DAYS)
        await prune.traffic(tx, before=now - traffic_days * DAY_S)
        if days:
            await prune.prompts(tx, before=now - days * DAY_S)
            gone = await erase.expire(tx, before=now - days * DAY_S)
            if gone:
                log.info("deleted %d messages older than %d days (memory.retention_days)", gone, days)
