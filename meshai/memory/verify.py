"""Does a database keep its promises? The invariants of docs/memory.md §5 that can be seen in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshai.errors import StorageError
from meshai.memory.validate import orders_model
from meshai.storage import conversations, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Queries
from meshai.storage.summaries import Summary


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken promise. ``invariant`` is its id in docs/memory.md §5, ``where`` a conversation's key or a table."""

    invariant: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.invariant}: {self.what}"


async def check(
    q: Queries, *, now: float, boot_id: str | None = None, deep: bool = True, retention: bool = False
) -> list[Problem]:
    """Every broken promise; empty when all is well. ``deep`` reads the whole file (integrity, index).

    ``retention``: old messages may be missing, because ``memory.retention_days`` deletes them.
    """
    found: list[Problem] = []
    for conv in await conversations.everyone(q):
        problems = await check_conversation(q, conv, now=now, boot_id=boot_id)
        found += [problem for problem in problems if not (retention and problem.invariant == "I2")]
    if deep:
        found += await _file(q)
    return found


async def check_conversation(
    q: Queries, conv: Conversation, *, now: float, boot_id: str | None = None
) -> list[Problem]:
    """The broken promises of one conversation."""
    nodes = await summaries.every(q, conv.id)
    active = [node for node in nodes if node.status == "completed" and node.parent_id is None]
    current = sorted((node for node in active if node.epoch == conv.epoch), key=lambda node: node.start_seq)
    problems = [
        *(("I1", text) for text in _coverage(conv, current)),
        *(("I2", text) for text in await _permanence(q, conv)),
        *(("I4", text) for text in _texts(nodes)),
        *(("I5", text) for text in _flights(nodes, now, boot_id)),
        *(("I7", text) for text in _chain(nodes)),
        *(("I10", text) for text in await _facts(q, conv)),
    ]
    return [Problem(invariant, conv.key, text) for invariant, text in problems]


def _coverage(conv: Conversation, chain: Sequence[Summary]) -> list[str]:
    if not conv.epoch_start_seq <= conv.anchor_seq <= conv.next_seq:
        return [f"anchor {conv.anchor_seq} is outside {conv.epoch_start_seq}..{conv.next_seq}"]
    if not chain:
        return [] if conv.anchor_seq == conv.epoch_start_seq else ["messages before the anchor have no summary"]
    found = [
        f"summaries {before.id} and {after.id} leave a gap or overlap"
        for before, after in pairwise(chain)
        if after.start_seq != before.end_seq + 1
    ]
    if chain[-1].end_seq != conv.anchor_seq - 1:
        found.append(f"the last summary ends at {chain[-1].end_seq}, the raw messages begin at {conv.anchor_seq}")
    if chain[0].start_seq != conv.epoch_start_seq and chain[-1].strategy != "sliding":
        found.append(f"messages {conv.epoch_start_seq}-{chain[0].start_seq - 1} have no summary")
    if chain[0].start_seq < conv.epoch_start_seq:
        found.append("a summary reaches into an earlier epoch")
    return found


async def _permanence(q: Queries, conv: Conversation) -> list[str]:
    row = await q.fetch_one(
        "SELECT count(*) AS n, coalesce(min(seq), 0) AS first, coalesce(max(seq), -1) AS last"
        " FROM messages WHERE conv_id = ?",
        (conv.id,),
    )
    assert row is not None
    found = []
    if row["n"] and row["n"] != row["last"] - row["first"] + 1:
        found.append(f"{row['last'] - row['first'] + 1 - row['n']} messages are missing")
    if row["last"] >= conv.next_seq:
        found.append("the next sequence number is taken")
    return found


def _texts(nodes: Sequence[Summary]) -> list[str]:
    found = [f"summary {node.id} is empty" for node in nodes if node.status == "completed" and not node.text.strip()]
    found += [f"summary {node.id} gives orders" for node in nodes if node.text and orders_model(node.text)]
    return found


def _flights(nodes: Sequence[Summary], now: float, boot_id: str | None) -> list[str]:
    running = [node for node in nodes if node.status == "processing"]
    found = ["several summaries at once"] if len(running) > 1 else []
    found += [f"summary {node.id} outlived its lease" for node in running if (node.lease_until or 0) < now]
    if boot_id is not None:
        found += [f"summary {node.id} is of an earlier run" for node in running if node.boot_id != boot_id]
    return found


def _chain(nodes: Sequence[Summary]) -> list[str]:
    by_id = {node.id: node for node in nodes}
    found: list[str] = []
    for node in nodes:
        for name, other_id in (("base", node.base_id), ("replaced", node.replaces_id), ("parent", node.parent_id)):
            other = by_id.get(other_id) if other_id is not None else None
            if other_id is not None and other is None:
                found.append(f"summary {node.id}: its {name} {other_id} is of another conversation")
            elif other is not None and other.epoch != node.epoch:
                found.append(f"summary {node.id}: its {name} {other.id} is of another epoch")
        if _is_circular(node, by_id):
            found.append(f"summary {node.id} is its own ancestor")
    for node in nodes:
        if node.status == "completed":
            found += _ranges(node, [child for child in nodes if child.parent_id == node.id])
    return found


def _is_circular(node: Summary, by_id: dict[int, Summary]) -> bool:
    for step in ("base_id", "replaces_id", "parent_id"):
        seen, at = {node.id}, getattr(node, step)
        while at is not None and at in by_id:
            if at in seen:
                return True
            seen.add(at)
            at = getattr(by_id[at], step)
    return False


def _ranges(node: Summary, children: Sequence[Summary]) -> list[str]:
    if not children or node.strategy == "sliding":
        return []
    ordered = sorted(children, key=lambda child: child.start_seq)
    whole = all(after.start_seq == before.end_seq + 1 for before, after in pairwise(ordered))
    if ordered[0].start_seq != node.start_seq or ordered[-1].end_seq > node.end_seq or not whole:
        return [f"summary {node.id} does not cover what it was made from"]
    return []


async def _facts(q: Queries, conv: Conversation) -> list[str]:
    rows = await q.fetch_all(
        "SELECT f.id FROM facts f LEFT JOIN messages m ON m.id = f.source_msg_id AND m.conv_id = f.conv_id"
        " WHERE f.conv_id = ? AND m.id IS NULL",
        (conv.id,),
    )
    return [f"fact {row['id']} cites no message of its conversation" for row in rows]


async def _file(q: Queries) -> list[Problem]:
    found = [
        Problem("file", "database", str(row[0]))
        for row in await q.fetch_all("PRAGMA integrity_check(20)")
        if row[0] != "ok"
    ]
    found += [
        Problem("file", str(row[0]), "a row points nowhere") for row in await q.fetch_all("PRAGMA foreign_key_check")
    ]
    for index, source in (("messages_fts", "messages_fts_source"), ("facts_fts", "facts_fts_source")):
        found += await _index(q, index, source)
    return found


async def _index(q: Queries, index: str, source: str) -> list[Problem]:
    """FTS row count = rows it stands for (I12); the full comparison needs to write, see ``Memory.verify``."""
    try:
        indexed = await q.fetch_value(f"SELECT count(*) FROM {index}_docsize")
    except StorageError as error:
        return [Problem("I12", index, str(error))]
    rows = await q.fetch_value(f"SELECT count(*) FROM {source}")
    if indexed != rows:
        return [Problem("I12", index, f"{indexed} of {rows} rows are indexed")]
    return []
