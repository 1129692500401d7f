"""The read path: from the database to the material of a prompt, without a model call; docs/memory.md §2.4."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from meshai.errors import StorageError
from meshai.memory.assemble import Ask, Material, Snippet
from meshai.memory.budget import Budget
from meshai.memory.buffer import Buffer
from meshai.memory.compact import Compactor
from meshai.memory.context import Context
from meshai.memory.facts import asks_for_the_past, line_of, mark_outdated
from meshai.memory.search import Hit, search
from meshai.memory.tokens import PER_MESSAGE
from meshai.storage import conversations, facts, messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.facts import Fact
from meshai.storage.messages import StoredMessage

log = logging.getLogger(__name__)

WINDOW_ROWS = 400
"""Newest raw rows read for a prompt; no budget shows more."""
SNIPPETS = 8
"""Most recalled turns in a prompt: more mislead small models (docs/memory.md §2.8)."""
SPARE_HITS = 4
"""Hits looked for beyond that, for those that state what does not hold any more."""


Changes = Sequence[tuple[Fact, Fact]]
"""What held before, and what does now."""


class Reader:
    """Collects what a conversation has to offer for a question."""

    def __init__(self, ctx: Context, compactor: Compactor, buffer: Buffer) -> None:
        self._ctx = ctx
        self._compactor = compactor
        self._buffer = buffer

    async def material(self, ask: Ask, budget: Budget) -> tuple[Conversation | None, Material]:
        """The conversation and its material; what is held in RAM when the database cannot be read."""
        held = self._buffer.rows(ask.key) if ask.key else []
        if ask.conv_id is None:
            return None, Material(window=held)
        try:
            conv = await conversations.get(self._ctx.db, ask.conv_id)
            if conv is None:
                return None, Material(window=held)
            self._ctx.budget = budget
            self._ctx.other_tokens = self._ctx.meter.measure(ask.model)(ask.system)
            material = await self._stored(conv, ask)
        except StorageError as error:
            self._buffer.complain(error, self._ctx.clock.monotonic())
            return None, Material(window=held)
        return conv, replace(material, window=[*material.window, *held])

    async def _stored(self, conv: Conversation, ask: Ask) -> Material:
        named, pairs = conv.kind == "channel", self._ctx.settings.window_pairs
        if not (self._ctx.settings.enabled and conv.memory_enabled):
            rows = await self._rows(conv, ask, first=conv.epoch_start_seq, limit=pairs * 2)
            return Material(window=rows, named=named, window_pairs=pairs)
        rows = await self._rows(conv, ask, first=conv.anchor_seq, limit=WINDOW_ROWS)
        if len(rows) > 1 and self._is_full(rows, ask) and await self._is_relieved(conv, ask):
            conv = await conversations.load(self._ctx.db, conv.id)
            rows = await self._rows(conv, ask, first=conv.anchor_seq, limit=WINDOW_ROWS)
        changes = await facts.superseded(self._ctx.db, conv.id) if self._ctx.settings.facts else []
        frozen, fresh = await self._known(conv, ask, changes)
        chain = [mark_outdated(node.text, changes) for node in await summaries.chain(self._ctx.db, conv.id, conv.epoch)]
        return Material(
            chain=chain,
            window=rows,
            facts=frozen,
            fresh=fresh,
            recalled=await self._recalled(conv, ask, changes),
            named=named,
            window_pairs=pairs,
        )

    async def _rows(self, conv: Conversation, ask: Ask, *, first: int, limit: int) -> list[StoredMessage]:
        rows = await messages.newest(self._ctx.db, conv.id, first, limit=limit + len(ask.message_ids))
        asked = max(ask.message_ids, default=None)
        return [row for row in rows if row.id not in ask.message_ids and not _is_next_question(row, asked)]

    def _is_full(self, rows: Sequence[StoredMessage], ask: Ask) -> bool:
        """A look without the database, for nearly every prompt: could the window be over its hard limit?"""
        assert self._ctx.budget is not None
        measure = self._ctx.measure()
        tokens = sum(measure(row.content) + PER_MESSAGE for row in rows) + measure(ask.question)
        return tokens * 100 > self._ctx.budget.window * self._ctx.settings.tuning.hard_percent

    async def _is_relieved(self, conv: Conversation, ask: Ask) -> bool:
        """Digest a full window on the spot (S2-16); failing to is no reason not to answer."""
        found = [await messages.get(self._ctx.db, message_id) for message_id in ask.message_ids]
        try:
            return await self._compactor.hard(conv, [row.seq for row in found if row is not None])
        except StorageError as error:
            self._buffer.complain(error, self._ctx.clock.monotonic())
            return False

    async def _known(self, conv: Conversation, ask: Ask, changes: Changes) -> tuple[list[str], list[str]]:
        """Facts of the prefix, and facts only the last message can show."""
        if not self._ctx.settings.facts:
            return [], []
        frozen: list[Fact] = []
        fresh: list[Fact] = []
        for fact, seq, from_command in await facts.current_with_seq(self._ctx.db, conv.id):
            if seq < conv.anchor_seq:
                frozen.append(fact)
            elif from_command:  # the window shows what people say, not their commands
                fresh.append(fact)
        past = [f"formerly {line_of(old)}" for old, _ in changes] if asks_for_the_past(ask.question) else []
        frozen.sort(key=lambda fact: (fact.pinned, fact.last_used or fact.created_at, fact.id))
        return [line_of(fact) for fact in frozen], [*past[:5], *(line_of(fact) for fact in fresh)]

    async def _recalled(self, conv: Conversation, ask: Ask, changes: Changes) -> list[Snippet]:
        if not self._ctx.settings.recall or conv.anchor_seq <= conv.epoch_start_seq:
            return []
        hits = await search(
            self._ctx.db,
            conv_id=conv.id,
            epoch=conv.epoch,
            question=ask.question,
            asker=conv.node_id,
            exclude_from_seq=conv.anchor_seq,
            limit=SNIPPETS + SPARE_HITS,
            now=self._ctx.clock.now(),
            gated=True,
        )
        if not asks_for_the_past(ask.question):
            hits = await self._in_force(hits)
        return [snippet(hit, changes) for hit in hits[:SNIPPETS]]

    async def _in_force(self, hits: Sequence[Hit]) -> list[Hit]:
        """Without the messages that state what does not hold any more (docs/memory.md §2.5)."""
        outdated = await facts.outdated_sources(self._ctx.db, [hit.message_id for hit in hits])
        return [hit for hit in hits if hit.message_id not in outdated]


def snippet(hit: Hit, changes: Changes) -> Snippet:
    """A hit as a prompt shows it."""
    text = mark_outdated(hit.content, changes)
    return Snippet(hit.message_id, hit.seq, hit.sender_name or hit.role, hit.created_at, text)


def _is_next_question(row: StoredMessage, asked: int | None) -> bool:
    """What was asked after the question has an answer of its own; an answer that came later belongs to earlier ones."""
    return asked is not None and row.role == "user" and row.id > asked
