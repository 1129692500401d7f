"""The strategies, by the name they have in the configuration: one line each."""

from __future__ import annotations

from collections.abc import Callable

from meshai.memory.strategies.base import Strategy
from meshai.memory.strategies.progressive import Progressive
from meshai.memory.strategies.rolling import Rolling
from meshai.memory.strategies.sliding import Sliding
from meshai.memory.strategies.tiered import Tiered

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "tiered": Tiered,
    "rolling": Rolling,
    "sliding": Sliding,
    "progressive": Progressive,
}


def make(name: str) -> Strategy:
    """The strategy of this name; KeyError when there is none."""
    return STRATEGIES[name]()
