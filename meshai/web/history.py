"""A day of figures, one sample a minute, in RAM: nothing is written to the card for a plot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from meshai.clock import Clock

EVERY_S = 60.0
KEPT = 24 * 60


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of one moment; percentages are None where the node has not said."""

    at: float
    channel_percent: float | None = None
    transmit_percent: float | None = None
    used_percent: float = 0.0
    waiting: int = 0
    queued: int = 0
    held: int = 0
    is_up: bool = False


class History:
    """Samples a source once a minute; ``at`` is monotonic, so that a jumping clock bends no plot."""

    def __init__(self, clock: Clock, look: Callable[[float], Sample]) -> None:
        self._clock = clock
        self._look = look
        self._samples: deque[Sample] = deque(maxlen=KEPT)

    @property
    def samples(self) -> list[Sample]:
        """Oldest first."""
        return list(self._samples)

    def sample(self) -> None:
        """Take one now."""
        self._samples.append(self._look(self._clock.monotonic()))

    async def run(self) -> None:
        """Take one each minute, until cancelled."""
        while True:
            self.sample()
            await self._clock.sleep(EVERY_S)
