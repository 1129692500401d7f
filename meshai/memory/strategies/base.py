"""What a strategy sees and what it answers: values without I/O, and the protocol.

A strategy decides which messages become which summary. Running the jobs, versions, leases, validation, facts and
the triggers of time and space are shared by all (docs/memory.md §2.3a).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Style = Literal["chunk", "rolling", "window", "narrative", "merge"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A raw message, as far as planning goes."""

    seq: int
    is_user: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Link:
    """An active summary of the chain."""

    id: int
    level: int
    start_seq: int
    end_seq: int
    tokens: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings a strategy reads. Tokens are those of the window's and the chain's share of the prompt."""

    window_tokens: int
    chain_tokens: int
    other_tokens: int = 0  # persona and facts: what a total counts besides
    window_pairs: int = 4
    compact_every: int = 0  # user turns; 0: the strategy's own rule
    min_messages: int = 10
    soft_percent: int = 70
    sliding_window: int = 14
    max_level1: int = 5
    max_active: int = 10
    summary_words: int = 120  # of a strategy that has one summary
    node_words: int = 120  # of one that has several
    read_tokens: int = 100_000  # what one request to the summariser can take
    word_cap: int = 10_000  # words the chain's share can hold


@dataclass(frozen=True, slots=True)
class View:
    """A conversation's current epoch: its chain and its raw messages, each oldest first.

    ``past`` are the newest messages that are not raw any more, for a strategy that looks back on them.
    """

    epoch_start_seq: int
    anchor_seq: int
    chain: Sequence[Link]
    window: Sequence[Turn]
    past: Sequence[Turn] = ()

    @property
    def window_tokens(self) -> int:
        """Tokens of the raw messages."""
        return sum(turn.tokens for turn in self.window)

    @property
    def chain_tokens(self) -> int:
        """Tokens of the active summaries."""
        return sum(link.tokens for link in self.chain)


@dataclass(frozen=True, slots=True)
class Job:
    """One summary to make: its range, what it is made from, how long it should be.

    ``sources`` are active summaries it takes the place of; ``read_from`` is the first raw message it reads, None when
    it reads none; ``retells`` says whether it reads the sources' text, too. After it the first raw message is
    ``end_seq + 1``, if that moves the anchor on.
    """

    start_seq: int
    end_seq: int
    style: Style
    words: tuple[int, int]
    read_from: int | None = None
    sources: tuple[int, ...] = ()
    retells: bool = True
    level: int = 1
    version: int = 1
    replaces: int | None = None


class Strategy(Protocol):
    """How old messages become summaries. A new one is one module plus one line in ``strategies``."""

    name: str
    covers_all: bool
    """Does chain plus window hold every message of the epoch (I1)?"""
    retells: bool
    """Does it show the summariser what was summarised before?"""

    def due(self, view: View, rules: Rules) -> bool:
        """Would it summarise now, if the conversation is idle?"""
        ...

    def plan(self, view: View, rules: Rules, *, keep: int | None = None) -> Job | None:
        """The summary to make next; None when there is nothing old enough.

        ``keep`` is the least number of newest messages that stay raw; None: the strategy's own tail.
        """
        ...

    def merge(self, view: View, rules: Rules) -> Job | None:
        """The summaries to make one of next; None when the chain is in order."""
        ...


def user_turns_beyond(view: View, pairs: int) -> int:
    """User turns older than the newest ``pairs`` ones: only they count towards ``compact_every`` (S3-13)."""
    return max(sum(turn.is_user for turn in view.window) - pairs, 0)


def tail_of_pairs(window: Sequence[Turn], pairs: int) -> int:
    """Messages from the ``pairs``-th newest user message on."""
    seen = 0
    for index in range(len(window) - 1, -1, -1):
        seen += window[index].is_user
        if seen == pairs:
            return len(window) - index
    return len(window)


def tail_of_tokens(window: Sequence[Turn], limit: int, *, most: int | None = None) -> int:
    """Newest messages that fit ``limit`` tokens, at most ``most``, beginning with a question if there is one."""
    total = fits = 0
    for count, turn in enumerate(reversed(window), 1):
        total += turn.tokens
        if total > limit or (most is not None and count > most):
            break
        fits = count
    begins = fits
    while 0 < begins < len(window) and not window[-begins].is_user:
        begins -= 1
    return begins or fits


def cut(window: Sequence[Turn], keep: int, read_tokens: int, *, block: int = 16) -> Sequence[Turn]:
    """The oldest messages to summarise: all but ``keep``, ending before a user message.

    When they do not fit one request, at most ``block`` of them that do, never fewer than one (a message larger than a
    request is shortened when it is shown, so that compaction always gets on).
    """
    end = max(len(window) - keep, 0)
    while 0 < end < len(window) and not window[end].is_user:
        end -= 1
    if sum(turn.tokens for turn in window[:end]) <= read_tokens:
        return window[:end]
    total = fits = 0
    for turn in window[:end]:
        total += turn.tokens
        if total > read_tokens or fits == block:
            break
        fits += 1
    whole = max(fits, 1)
    end = whole
    while 0 < end < len(window) and not window[end].is_user:
        end -= 1
    return window[: end or whole]
