"""What the parts of the memory share, and how they look at a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshai.clock import Clock
from meshai.config.model import Memory as MemorySettings
from meshai.llm.base import ChatModel
from meshai.memory.budget import Budget
from meshai.memory.meter import Meter
from meshai.memory.strategies.base import Link, Rules, Strategy, Turn, View
from meshai.memory.tokens import PER_MESSAGE, Measure
from meshai.storage import messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Database, Queries
from meshai.storage.messages import StoredMessage
from meshai.storage.summaries import Summary

WORDS_PER_TOKEN = 0.7
"""English prose; other scripts get fewer words from the same tokens, which only shortens their summaries."""
NODE_PERCENT = 5
"""One summary's share of the context (conflict 16) …"""
NODES_IN_CHAIN = 6
"""… and so many of them fit the chain: merging pairs all the time would cost more calls than it saves."""
LEAST_WORDS = 30
CHAIN_PERCENT = 15
"""Of the context: what the chain may have before it is merged (conflict 16), if the prompt has room for it …"""
CHAIN_ROOM_PERCENT = 167
"""… that is up to this much of its own share, for others seldom use up theirs."""
INSTRUCTION_TOKENS = 320
"""What the summariser is told besides the messages."""
READ_ROWS = 2000
"""Raw rows looked at for one plan; a longer backlog is worked off in several."""


@dataclass(slots=True)
class Context:
    """The parts' common ground. ``budget`` and ``other_tokens`` are those of the latest prompt."""

    db: Database
    settings: MemorySettings
    model: ChatModel
    clock: Clock
    boot_id: str
    strategy: Strategy
    meter: Meter
    parallel: int = 1
    budget: Budget | None = None
    other_tokens: int = 250
    own_prompt: str = ""
    preempted: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What the summariser's tokens are learned under."""
        return self.model.label

    def measure(self) -> Measure:
        """The summariser's tokens."""
        return self.meter.measure(self.label)


@dataclass(frozen=True, slots=True)
class Look:
    """A conversation as it was at one moment."""

    conv: Conversation
    chain: Sequence[Summary]
    view: View
    rules: Rules


async def rules_for(ctx: Context, conv: Conversation | None = None) -> Rules:
    """The settings as a strategy reads them, scaled to the model's context."""
    told = await ctx.model.context_tokens()
    budget = ctx.budget or ctx.meter.budget(ctx.label, context_tokens=told, reply_tokens=220)
    settings, tuning = ctx.settings, ctx.settings.tuning
    context = ctx.meter.context(ctx.label, told)
    chain_tokens = min(context * CHAIN_PERCENT // 100, budget.chain * CHAIN_ROOM_PERCENT // 100)
    node_tokens = min(context * NODE_PERCENT // 100, chain_tokens // NODES_IN_CHAIN)
    most = min(tuning.summary_words, max(int(node_tokens * WORDS_PER_TOKEN), LEAST_WORDS))
    return Rules(
        window_tokens=budget.window,
        chain_tokens=chain_tokens,
        other_tokens=ctx.other_tokens,
        window_pairs=settings.window_pairs,
        compact_every=(conv.compact_every if conv else None) or settings.compact_every,
        min_messages=tuning.min_messages,
        soft_percent=tuning.soft_percent,
        sliding_window=settings.sliding_window,
        max_level1=tuning.max_level1,
        max_active=tuning.max_active,
        node_words=most,
        summary_words=tuning.summary_words,
        read_tokens=read_tokens(ctx, context, budget, most),
        word_cap=max(int(budget.chain * WORDS_PER_TOKEN), 20),
    )


def read_tokens(ctx: Context, context: int, budget: Budget, node_words: int) -> int:
    """What one request to the summariser can take of messages: its context without answer, instructions, summaries."""
    words = ctx.settings.tuning.summary_words if ctx.strategy.retells else node_words
    free = context * 0.9 / ctx.meter.factor(ctx.label) - answer_tokens(ctx, words) - INSTRUCTION_TOKENS
    return max(int(free) - (budget.chain if ctx.strategy.retells else 0), 128)


def answer_tokens(ctx: Context, words: int) -> int:
    """``max_tokens`` of a summary call: from the words, never under 160, fact lines included."""
    tuning = ctx.settings.tuning
    if tuning.summary_max_tokens:
        return tuning.summary_max_tokens
    return max(int(words / WORDS_PER_TOKEN) + 20, 160) + (120 if ctx.settings.facts else 0)


async def look(ctx: Context, conv: Conversation, *, q: Queries | None = None) -> Look:
    """The conversation's chain, raw messages and rules; the oldest ``READ_ROWS`` raw messages if there are more."""
    source = q or ctx.db
    chain = await summaries.chain(source, conv.id, conv.epoch)
    rows = await messages.between(source, conv.id, conv.anchor_seq, conv.next_seq, limit=READ_ROWS)
    past = await messages.newest_before(
        source, conv.id, conv.anchor_seq, conv.epoch_start_seq, limit=ctx.settings.sliding_window
    )
    measure = ctx.measure()
    view = View(
        epoch_start_seq=conv.epoch_start_seq,
        anchor_seq=conv.anchor_seq,
        chain=[link(node) for node in chain],
        window=turns(rows, measure),
        past=turns(past, measure),
    )
    return Look(conv, chain, view, await rules_for(ctx, conv))


def link(node: Summary) -> Link:
    """A node as a strategy sees it."""
    return Link(node.id, node.level, node.start_seq, node.end_seq, node.tokens, node.version)


def turns(rows: Sequence[StoredMessage], measure: Measure) -> list[Turn]:
    """Rows as a strategy sees them."""
    return [Turn(row.seq, row.role == "user", measure(row.content) + PER_MESSAGE) for row in rows]
