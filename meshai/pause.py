"""The operator's silence: while it lasts only admins are answered. Survives restarts."""

from __future__ import annotations

import math

from meshai.clock import Clock
from meshai.storage.database import Queries, Transaction

_KEY = "paused_until"


class Pause:
    """Whether the bot is paused, and until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0

    @property
    def is_on(self) -> bool:
        """Paused now."""
        return self._clock.now() < self._until

    @property
    def left_s(self) -> float:
        """Seconds to go; infinite until somebody resumes, 0 when not paused."""
        return max(0.0, self._until - self._clock.now())

    async def load(self, q: Queries) -> None:
        """Take up what the last run stored."""
        stored = await q.fetch_value("SELECT value FROM meta WHERE key = ?", (_KEY,))
        self._until = float(stored) if stored is not None else 0.0

    async def begin(self, tx: Transaction, duration_s: float = math.inf) -> None:
        """Be silent for so long."""
        await self._store(tx, self._clock.now() + duration_s)

    async def end(self, tx: Transaction) -> None:
        """Answer again."""
        await self._store(tx, 0.0)

    async def _store(self, tx: Transaction, until: float) -> None:
        await tx.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (_KEY, str(until)),
        )
        tx.after_commit(lambda: setattr(self, "_until", until))
