"""Sliding (S1): one summary over the last 14 messages; what slides out stays in the archive and in recall."""

from __future__ import annotations

from collections.abc import Sequence

from meshai.memory.strategies.base import Job, Rules, Turn, View, user_turns_beyond
from meshai.memory.strategies.rolling import flatten, whole_words
from meshai.memory.strategies.tiered import is_filling

AFTER_SEQ = 5
"""Default trigger: the last stored message has at least this number in its epoch (S1-6)."""


class Sliding:
    """One node over a window that moves with the conversation."""

    name = "sliding"
    covers_all = False
    retells = True

    def due(self, view: View, rules: Rules) -> bool:
        """After every round from the third on (S1-13)."""
        end = _last_answered(view)
        if end is None:
            return False
        if rules.compact_every:
            return user_turns_beyond(view, 0) >= rules.compact_every or is_filling(view, rules)
        return end - view.epoch_start_seq >= AFTER_SEQ

    def plan(self, view: View, rules: Rules, *, keep: int | None = None) -> Job | None:
        """A node from the window's first message to the last answered one (S1-14).

        It is made from the previous version and the new messages while nothing slides out, and from the window's own
        messages once something does: nothing is dropped by instruction (conflict 7).
        """
        raw = view.window[: len(view.window) - keep] if keep else view.window
        end = next((index for index in range(len(raw), 0, -1) if not raw[index - 1].is_user), 0)
        if not end:
            return None
        rows = [*view.past, *raw[:end]]
        covered = summary_range(rows, rules.sliding_window)
        start = view.epoch_start_seq if covered[0] is rows[0] and not _is_cut(view) else covered[0].seq
        grows = not view.chain or (len(view.chain) == 1 and view.chain[0].start_seq == start)
        return Job(
            start,
            covered[-1].seq,
            "window",
            whole_words(rules),
            read_from=view.anchor_seq if grows else start,
            sources=tuple(link.id for link in view.chain),
            retells=grows,
            version=max((link.version for link in view.chain), default=0) + 1,
        )

    def merge(self, view: View, rules: Rules) -> Job | None:
        """Nodes another strategy left become one."""
        return flatten(view, rules)


def summary_range(rows: Sequence[Turn], window: int) -> Sequence[Turn]:
    """The newest ``window`` messages, without an answer whose question is not among them.

    On alternating messages numbered from 0 this is S1's ``calculate_summary_range`` (max(0, end - window + 1), rounded
    up to even); the mesh knows lost answers and several speakers, so it looks at who speaks instead (conflict 9).
    """
    newest = rows[-window:]
    if len(newest) == len(rows):
        return newest
    first = next((index for index, turn in enumerate(newest) if turn.is_user), 0)
    return newest[first:]


def _is_cut(view: View) -> bool:
    """Has something slid out already?"""
    return bool(view.chain) and view.chain[0].start_seq > view.epoch_start_seq


def _last_answered(view: View) -> int | None:
    return next((turn.seq for turn in reversed(view.window) if not turn.is_user), None)
