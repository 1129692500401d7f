"""Progressive (S4): like rolling, but the summary may grow with every version, beside structured important data."""

from __future__ import annotations

from meshai.memory.strategies.base import Job, Rules, View, cut, tail_of_tokens, user_turns_beyond
from meshai.memory.strategies.rolling import flatten, successor
from meshai.memory.strategies.tiered import is_filling, space_tail

TOTAL_TOKENS = 3000
"""System, summaries and messages beyond this are summarised (S4-2)."""
KEEP_TOKENS = 2500
"""Newest messages kept raw (S4-3) …"""
WORDS = ((100, 150), (200, 250), (300, 350), (400, 450), (500, 750))
"""Word target by version (S4-10)."""


class Progressive:
    """One node whose length follows its version."""

    name = "progressive"
    covers_all = True
    retells = True

    def due(self, view: View, rules: Rules) -> bool:
        """The whole prompt is beyond 3 000 tokens, or what the budget makes of that."""
        if rules.compact_every:
            enough = user_turns_beyond(view, rules.window_pairs) >= rules.compact_every
            return (enough and len(view.window) >= rules.min_messages) or is_filling(view, rules)
        return view.window_tokens > window_limit(view, rules)

    def plan(self, view: View, rules: Rules, *, keep: int | None = None) -> Job | None:
        """Everything older than the kept tokens, together with the previous version."""
        if keep is None:
            keep = self._tail(view, rules)
        old = cut(view.window, keep, rules.read_tokens)
        if not old:
            return None
        version = max((link.version for link in view.chain), default=0) + 1
        return successor(view, old[-1].seq, "narrative", word_target(version, rules.word_cap))

    def merge(self, view: View, rules: Rules) -> Job | None:
        """Nodes another strategy left become one."""
        return flatten(view, rules)

    def _tail(self, view: View, rules: Rules) -> int:
        if rules.compact_every:
            return space_tail(view, rules)
        limit = window_limit(view, rules)
        return tail_of_tokens(view.window, min(KEEP_TOKENS, limit * KEEP_TOKENS // TOTAL_TOKENS))


def window_limit(view: View, rules: Rules) -> int:
    """The raw messages' part of the 3 000 tokens; a small budget scales it down to its own soft limit."""
    of_total = TOTAL_TOKENS - rules.other_tokens - view.chain_tokens
    of_budget = rules.window_tokens * rules.soft_percent // 100
    return min(max(of_total, TOTAL_TOKENS // 4), of_budget)


def word_target(version: int, cap: int = 10_000) -> tuple[int, int]:
    """100–150 words for version 1 … 500–750 from version 5 on, within what the budget holds (S4-10)."""
    least, most = WORDS[min(max(version, 1), len(WORDS)) - 1]
    return min(least, max(cap // 2, 10)), min(most, max(cap, 20))
