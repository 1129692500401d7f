"""The archive, per node: figures, contents, search, checks and repairs (S0-27, S1-23 to S1-26, S3-34, S3-35)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from meshai.clock import Clock
from meshai.memory.memory import Memory
from meshai.operations.base import Operation, Report, chosen
from meshai.storage import conversations, messages, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Database, Transaction

SHOWN_MESSAGES = 20


class MemoryOperations:
    """``meshai memory …``."""

    def __init__(self, db: Database, clock: Clock, memory: Memory) -> None:
        self._db = db
        self._clock = clock
        self._memory = memory

    def table(self) -> dict[str, Operation]:
        """Name → operation."""
        return {
            "memory.status": self.status,
            "memory.show": self.show,
            "memory.search": self.search,
            "memory.verify": self.verify,
            "memory.rebuild": self.rebuild,
            "memory.rollback": self.rollback,
            "memory.export": self.export,
            "memory.import": self.restore,
            "memory.forget": self.forget,
        }

    async def status(self, args: Mapping[str, Any], _report: Report) -> list[dict[str, object]]:
        """The figures of every conversation, or of one node's."""
        convs = await self._chosen(args) or await conversations.everyone(self._db)
        return [
            {"key": conv.key, "closed": conv.closed_at is not None, **asdict(await self._memory.status(conv.id))}
            for conv in convs
        ]

    async def show(self, args: Mapping[str, Any], _report: Report) -> dict[str, object]:
        """Summaries with ranges and versions, facts with quotes, the newest messages."""
        conv, *others = await chosen(self._db, args.get("node"))
        page = await messages.page(self._db, conv.id, limit=int(args.get("limit") or SHOWN_MESSAGES))
        known = await self._memory.facts(conv.id)
        return {
            "key": conv.key,
            "others": [other.key for other in others],
            "epoch": conv.epoch,
            "anchor_seq": conv.anchor_seq,
            "status": asdict(await self._memory.status(conv.id)),
            "summaries": [asdict(node) for node in await summaries.every(self._db, conv.id)],
            "facts": [
                {"line": self._memory.fact_line(fact), "quote": fact.quote, "origin": fact.origin} for fact in known
            ],
            "messages": [asdict(message) for message in page],
        }

    async def search(self, args: Mapping[str, Any], _report: Report) -> list[dict[str, object]]:
        """Messages of the current epochs that fit the words, best first in each conversation."""
        words = str(args.get("words") or "")
        convs = await self._chosen(args) or await conversations.everyone(self._db)
        found = []
        for conv in convs:
            hits = await self._memory.recall(conv.id, words)
            found += [{"key": conv.key, "date": hit.date, "who": hit.who, "text": hit.text} for hit in hits]
        return found

    async def verify(self, _args: Mapping[str, Any], _report: Report) -> list[str]:
        """Every broken invariant, as a sentence; empty when all is well."""
        return [str(problem) for problem in await self._memory.verify()]

    async def rebuild(self, args: Mapping[str, Any], report: Report) -> dict[str, int]:
        """Summaries, facts and index anew from the archive."""
        convs = await self._chosen(args)
        calls = await self._memory.rebuild([conv.id for conv in convs] or None, progress=report)
        return {"model_calls": calls}

    async def rollback(self, args: Mapping[str, Any], _report: Report) -> dict[str, object]:
        """Take back the newest summary, or the one with this id."""
        conv = (await chosen(self._db, args.get("node")))[0]
        number = args.get("summary")
        node = await self._memory.rollback(conv.id, int(number) if number is not None else None)
        return {"key": conv.key, "id": node.id, "start_seq": node.start_seq, "end_seq": node.end_seq}

    async def export(self, args: Mapping[str, Any], _report: Report) -> dict[str, Any]:
        """The archive as JSON (docs/memory.md)."""
        convs = await self._chosen(args)
        return await self._memory.export([conv.id for conv in convs] or None)

    async def restore(self, args: Mapping[str, Any], _report: Report) -> dict[str, object]:
        """Take an export in."""
        return asdict(await self._memory.restore(args.get("data")))

    async def forget(self, args: Mapping[str, Any], _report: Report) -> dict[str, object]:
        """Erase everything of a node, or of one conversation, for good."""
        convs = await chosen(self._db, args.get("node"))

        async def body(tx: Transaction) -> int:
            now = self._clock.now()
            return sum([await self._memory.forget_all(tx, conv.id, now) for conv in convs])

        count = await self._db.transaction(body)
        await self._memory.finish_erasure()
        return {"messages": count, "conversations": [conv.key for conv in convs]}

    async def _chosen(self, args: Mapping[str, Any]) -> list[Conversation]:
        return await chosen(self._db, args["node"]) if args.get("node") else []
