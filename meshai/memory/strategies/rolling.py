"""Rolling (S0): one summary; each compaction rewrites it together with what left the window."""

from __future__ import annotations

from meshai.memory.strategies.base import Job, Rules, View, cut, tail_of_pairs, user_turns_beyond
from meshai.memory.strategies.tiered import is_filling, space_tail

NEW_MESSAGES = 8
"""Default trigger: messages older than the window (S0-3 summarize_threshold)."""


class Rolling:
    """One node over everything before the window, rewritten into its successor."""

    name = "rolling"
    covers_all = True
    retells = True

    def due(self, view: View, rules: Rules) -> bool:
        """Eight messages are older than the window's pairs, or the window is filling."""
        if is_filling(view, rules):
            return True
        if len(view.window) < rules.min_messages:
            return False
        if rules.compact_every:
            return user_turns_beyond(view, rules.window_pairs) >= rules.compact_every
        return len(view.window) - tail_of_pairs(view.window, rules.window_pairs) >= NEW_MESSAGES

    def plan(self, view: View, rules: Rules, *, keep: int | None = None) -> Job | None:
        """The previous summary and the messages older than the pairs become the next version."""
        if keep is None:
            keep = (
                space_tail(view, rules) if is_filling(view, rules) else tail_of_pairs(view.window, rules.window_pairs)
            )
        old = cut(view.window, keep, rules.read_tokens)
        if not old:
            return None
        return successor(view, old[-1].seq, "rolling", whole_words(rules))

    def merge(self, view: View, rules: Rules) -> Job | None:
        """Nodes another strategy left become one."""
        return flatten(view, rules)


def successor(view: View, end_seq: int, style: str, words: tuple[int, int]) -> Job:
    """A node over everything up to ``end_seq`` that takes the whole chain's place."""
    chain = view.chain
    return Job(
        chain[0].start_seq if chain else view.anchor_seq,
        end_seq,
        style,  # type: ignore[arg-type]
        words,
        read_from=view.anchor_seq,
        sources=tuple(link.id for link in chain),
        level=max((link.level for link in chain), default=1),
        version=max((link.version for link in chain), default=0) + 1,
    )


def whole_words(rules: Rules) -> tuple[int, int]:
    """Word target of a summary that stands alone."""
    most = max(min(rules.summary_words, rules.word_cap), 20)
    return most // 2, most


def flatten(view: View, rules: Rules) -> Job | None:
    """One node out of a chain of several; None when there is at most one."""
    if len(view.chain) < 2:
        return None
    return Job(
        view.chain[0].start_seq,
        view.chain[-1].end_seq,
        "merge",
        whole_words(rules),
        sources=tuple(link.id for link in view.chain),
        level=max(link.level for link in view.chain) + 1,
        version=max(link.version for link in view.chain),
    )
