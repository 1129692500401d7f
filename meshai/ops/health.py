"""Whether the daemon still works, for the watchdog (DESIGN §3 Watchdog).

An absent or refusing node is healthy: the link supervisor is at work. The daemon is unwell while its inbox or outbox
stands still, and lost when only a new process can help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

STANDSTILL_S = 300.0
"""Longer than any wait of inbox and outbox while there is something to do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``feed``: tell systemd we are alive. ``lost``: end with exit 1 so that systemd starts us anew."""

    feed: bool
    lost: bool = False
    reason: str = ""


class Health:
    """Judges from the parts' own reports."""

    def __init__(self, *, must_restart: Callable[[], str], stalled_s: Mapping[str, Callable[[], float]]) -> None:
        """``must_restart`` is the link's; ``stalled_s`` tells for each part how long its work has waited, 0 if idle."""
        self._must_restart = must_restart
        self._stalled_s = stalled_s

    def judge(self) -> Verdict:
        """The verdict now."""
        reason = self._must_restart()
        if reason:
            return Verdict(feed=False, lost=True, reason=reason)
        for part, stalled_s in self._stalled_s.items():
            if stalled_s() > STANDSTILL_S:
                return Verdict(feed=False, reason=f"the {part} does not move")
        return Verdict(feed=True)
