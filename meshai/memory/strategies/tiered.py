"""Tiered (default; S3 and docs/memory.md §2.3): independent summaries of new messages, merged upward five at a time.

A text is rewritten once a level instead of once a compaction, so little is lost even after years.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshai.memory.strategies.base import (
    Job,
    Link,
    Rules,
    Turn,
    View,
    cut,
    tail_of_pairs,
    tail_of_tokens,
    user_turns_beyond,
)

USER_TURNS = 10
"""Default trigger (S3-10 summary_every_n)."""
MOST_RAW = 20
"""Most messages kept raw after a compaction for want of space (S2-17)."""
TAIL_PERCENT = 35
"""… and their share of the window's tokens (conflict 1); never more than half of the soft limit."""
BATCH_PERCENT = 85
"""Of what one request can take: more than this is a full batch."""
FAN_IN = 5
"""Summaries that become one (S3-15)."""


class Tiered:
    """Level-1 nodes over new messages only; five of a level become one of the next."""

    name = "tiered"
    covers_all = True
    retells = False

    def due(self, view: View, rules: Rules) -> bool:
        """Ten user turns are older than the kept pairs, or the window is filling and a call would be worth it."""
        enough = user_turns_beyond(view, rules.window_pairs) >= (rules.compact_every or USER_TURNS)
        if enough and len(view.window) >= rules.min_messages:
            return True
        return is_filling(view, rules) and is_batch(view.window[: len(view.window) - self._tail(view, rules)], rules)

    def plan(self, view: View, rules: Rules, *, keep: int | None = None) -> Job | None:
        """One node over the messages older than the tail."""
        if keep is None:
            keep = self._tail(view, rules)
        old = cut(view.window, keep, rules.read_tokens)
        if not old:
            return None
        return Job(view.anchor_seq, old[-1].seq, "chunk", words(rules), read_from=view.anchor_seq)

    def _tail(self, view: View, rules: Rules) -> int:
        pairs = tail_of_pairs(view.window, rules.window_pairs)
        return pairs if _fits(view, rules, pairs) else space_tail(view, rules)

    def merge(self, view: View, rules: Rules) -> Job | None:
        """Five oldest of a level that has too many, or of the fullest one when the chain is too long."""
        return merge_levels(view, rules)


def is_filling(view: View, rules: Rules) -> bool:
    """Has the window reached its soft limit (S2-11)?"""
    return view.window_tokens * 100 >= rules.window_tokens * rules.soft_percent


def space_tail(view: View, rules: Rules) -> int:
    """Messages kept raw when space is short: at most 20 and 35 % of the window, the pairs if they fit at all."""
    percent = min(TAIL_PERCENT, rules.soft_percent // 2)
    roomy = tail_of_tokens(view.window, rules.window_tokens * percent // 100, most=MOST_RAW)
    pairs = tail_of_pairs(view.window, rules.window_pairs)
    return max(roomy, pairs) if _fits(view, rules, pairs) else roomy


def is_batch(turns: Sequence[Turn], rules: Rules) -> bool:
    """Are these messages worth a call?

    In a small context the window fills every few exchanges: then digests stand in, and one call betters several.
    """
    tokens = sum(turn.tokens for turn in turns)
    return len(turns) >= 2 * USER_TURNS or tokens * 100 >= rules.read_tokens * BATCH_PERCENT


def _fits(view: View, rules: Rules, count: int) -> bool:
    """Do the newest ``count`` messages stay below the soft limit?"""
    tail = view.window[len(view.window) - count :]
    return sum(turn.tokens for turn in tail) * 100 < rules.window_tokens * rules.soft_percent


def words(rules: Rules) -> tuple[int, int]:
    """Word target of one node."""
    most = max(min(rules.node_words, rules.word_cap), 20)
    return most // 2, most


def merge_levels(view: View, rules: Rules) -> Job | None:
    """The merge that is due: too many of a level, too many in all, or too many tokens."""
    counts = Counter(link.level for link in view.chain)
    over = [level for level in sorted(counts) if counts[level] > rules.max_level1]
    too_long = len(view.chain) > rules.max_active or view.chain_tokens > rules.chain_tokens
    if over:
        group = [link for link in view.chain if link.level == over[0]][:FAN_IN]
    elif too_long and len(view.chain) > 1:
        fullest = max(counts, key=lambda level: (counts[level], -level))
        group = [link for link in view.chain if link.level == fullest][:FAN_IN]
    else:
        return None
    return merged(group if len(group) > 1 else list(view.chain)[:2], rules)


def merged(group: list[Link], rules: Rules) -> Job:
    """One node over a run of neighbours."""
    return Job(
        group[0].start_seq,
        group[-1].end_seq,
        "merge",
        words(rules),
        sources=tuple(link.id for link in group),
        level=max(link.level for link in group) + 1,
    )
