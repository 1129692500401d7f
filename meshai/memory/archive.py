"""The archive as readable JSON and back (the store of S3, docs/memory.md §7), and the tables of the original MeshAI."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshai.errors import StorageError, UsageError
from meshai.memory.tokens import estimate
from meshai.storage import conversations, facts, identities, summaries
from meshai.storage.conversations import Conversation
from meshai.storage.database import Queries, Transaction
from meshai.storage.identities import IdentityRow

FORMAT = "meshai-memory"
VERSION = 1

# What a row is in the file: everything but the ids, which are places in the file's own lists.
_CONVERSATION = (
    "key kind node_id memory_enabled compact_every epoch epoch_start_seq anchor_seq next_seq facts_upto_seq prefix_rev"
    " disclosed_at closed_at created_at last_active"
)
_MESSAGE = "seq epoch role sender sender_name content created_at packet_id is_command tokens_est status"
_SUMMARY = (
    "epoch level start_seq end_seq text status quality strategy version attempts model prompt_rev src_count src_tokens"
    " tokens retention generation_ms error created_at completed_at"
)
_KEY = "first_seen accepted_at revoked_at"
_FACT = "epoch subject kind key value quote origin pinned valid_from invalid_at hash last_used created_at"


@dataclass(slots=True)
class Imported:
    """What came in; ``skipped`` are conversations that have messages here already."""

    conversations: int = 0
    messages: int = 0
    summaries: int = 0
    facts: int = 0
    skipped: tuple[str, ...] = ()


async def export(q: Queries, conv_ids: list[int] | None = None, *, now: float) -> dict[str, Any]:
    """Every conversation (or these) with messages, summaries and facts."""
    chosen = [c for c in await conversations.everyone(q) if conv_ids is None or c.id in conv_ids]
    return {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": now,
        "conversations": [await _export_one(q, conv) for conv in chosen],
    }


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write atomically: a temporary file, fsync, rename (S3-9); mode 0600."""
    scratch = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def read_json(path: Path) -> object:
    """The values of a file; UsageError when it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error


async def restore(tx: Transaction, data: object) -> Imported:
    """Take an export in, all or nothing."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError("this is not an export of MeshAI's memory")
    if data.get("version") != VERSION:
        raise UsageError(f"this export has version {data.get('version')}, this program reads {VERSION}")
    done = Imported()
    try:
        for one in data["conversations"]:
            if not await _restore_one(tx, one, done):
                done.skipped += (str(one["key"]),)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, sqlite3.IntegrityError, StorageError) as error:
        raise UsageError(f"the export is damaged: {type(error).__name__}: {error}") from error
    return done


def read_original(path: Path) -> dict[str, Any]:
    """The original MeshAI's ``conversations`` and ``conversation_summaries`` as an export.

    UsageError when the file has no such tables.
    """
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute(
                "SELECT user_id, role, content, timestamp FROM conversations ORDER BY user_id, timestamp, id"
            ).fetchall()
            try:
                found = connection.execute(
                    "SELECT user_id, summary, message_count, updated_at FROM conversation_summaries"
                )
                by_user = {str(row["user_id"]): row for row in found}
            except sqlite3.OperationalError:
                by_user = {}  # versions before the rolling summary
    except sqlite3.Error as error:
        raise UsageError(f"{path} is not a database of the original MeshAI: {error}") from error
    users = dict.fromkeys(str(row["user_id"]) for row in rows)
    return {
        "format": FORMAT,
        "version": VERSION,
        "conversations": [
            _original(user, [row for row in rows if str(row["user_id"]) == user], by_user.get(user)) for user in users
        ],
    }


async def _export_one(q: Queries, conv: Conversation) -> dict[str, Any]:
    rows = await q.fetch_all("SELECT * FROM messages WHERE conv_id = ? ORDER BY seq", (conv.id,))
    seq_of = {row["id"]: row["seq"] for row in rows}
    nodes = [node for node in await summaries.every(q, conv.id) if node.status != "processing"]
    place = {node.id: number for number, node in enumerate(nodes)}
    known = await facts.every(q, conv.id)
    fact_place = {fact.id: number for number, fact in enumerate(known)}
    return {
        **{name: getattr(conv, name) for name in _CONVERSATION.split()},
        "keys": [
            {"public_key": row.public_key.hex(), **{name: getattr(row, name) for name in _KEY.split()}}
            for row in await identities.of_conversation(q, conv.id)
        ],
        "messages": [
            {**{name: row[name] for name in _MESSAGE.split()}, "reply_to": seq_of.get(row["reply_to"])} for row in rows
        ],
        "summaries": [
            {
                **{name: getattr(node, name) for name in _SUMMARY.split()},
                "base": place.get(node.base_id or 0),
                "replaces": place.get(node.replaces_id or 0),
                "parent": place.get(node.parent_id or 0),
            }
            for node in nodes
        ],
        "facts": [
            {
                **{name: getattr(fact, name) for name in _FACT.split()},
                "source": seq_of[fact.source_msg_id],
                "superseded_by": fact_place.get(fact.superseded_by or 0),
            }
            for fact in known
        ],
    }


async def _restore_one(tx: Transaction, one: dict[str, Any], done: Imported) -> bool:
    existing = await conversations.by_key(tx, one["key"])
    if existing is not None and existing.next_seq > 0:
        return False
    conv = await conversations.get_or_create(
        tx, one["key"], kind=one["kind"], node_id=one["node_id"], now=float(one["created_at"])
    )
    ids = await _restore_messages(tx, conv.id, one["messages"])
    await _restore_summaries(tx, conv.id, one["summaries"])
    await _restore_facts(tx, conv.id, one["facts"], ids)
    names = [name for name in _CONVERSATION.split() if name not in ("key", "kind", "node_id")]
    await tx.execute(
        f"UPDATE conversations SET {', '.join(f'{name} = ?' for name in names)} WHERE id = ?",
        [*(_plain(one[name]) for name in names), conv.id],
    )
    await _restore_owner(tx, conv, one.get("keys") or [])
    done.conversations += 1
    done.messages += len(one["messages"])
    done.summaries += len(one["summaries"])
    done.facts += len(one["facts"])
    return True


async def _restore_owner(tx: Transaction, conv: Conversation, keys: list[dict[str, Any]]) -> None:
    """Whose keys a conversation belongs to; without one it waits for its node's first contact."""
    if conv.node_id is None:
        return
    for key in keys:
        values = [_plain(key[name]) for name in _KEY.split()]
        await identities.restore(tx, IdentityRow(conv.node_id, bytes.fromhex(key["public_key"]), conv.id, *values))  # type: ignore[arg-type]
    if not await identities.of_node(tx, conv.node_id):
        await identities.await_owner(tx, conv.node_id)


async def _restore_messages(tx: Transaction, conv_id: int, rows: list[dict[str, Any]]) -> dict[int, int]:
    ids: dict[int, int] = {}
    names = _MESSAGE.split()
    marks = ", ".join("?" * (len(names) + 2))
    for row in rows:
        ids[row["seq"]] = await tx.insert(
            f"INSERT INTO messages (conv_id, reply_to, {', '.join(names)}) VALUES ({marks})",
            [conv_id, ids.get(row["reply_to"]), *(_plain(row[name]) for name in names)],
        )
    return ids


async def _restore_summaries(tx: Transaction, conv_id: int, nodes: list[dict[str, Any]]) -> None:
    names = _SUMMARY.split()
    marks = ", ".join("?" * (len(names) + 1))
    ids: list[int] = []
    for node in nodes:  # parents first come later: a node is 'superseded' until all are there, so no index objects
        values = {name: _plain(node[name]) for name in names} | {"status": "superseded"}
        ids.append(
            await tx.insert(
                f"INSERT INTO summaries (conv_id, {', '.join(names)}) VALUES ({marks})", [conv_id, *values.values()]
            )
        )
    for node_id, node in zip(ids, nodes, strict=True):
        links = [None if node[name] is None else ids[node[name]] for name in ("base", "replaces", "parent")]
        await tx.execute(
            "UPDATE summaries SET base_id = ?, replaces_id = ?, parent_id = ? WHERE id = ?", [*links, node_id]
        )
    for node_id, node in zip(ids, nodes, strict=True):
        await tx.execute("UPDATE summaries SET status = ? WHERE id = ?", (node["status"], node_id))


async def _restore_facts(tx: Transaction, conv_id: int, known: list[dict[str, Any]], sources: dict[int, int]) -> None:
    names = _FACT.split()
    marks = ", ".join("?" * (len(names) + 2))
    ids = [
        await tx.insert(
            f"INSERT INTO facts (conv_id, source_msg_id, {', '.join(names)}) VALUES ({marks})",
            [conv_id, sources[fact["source"]], *(_plain(fact[name]) for name in names)],
        )
        for fact in known
    ]
    for fact_id, fact in zip(ids, known, strict=True):
        if fact["superseded_by"] is not None:
            await tx.execute("UPDATE facts SET superseded_by = ? WHERE id = ?", (ids[fact["superseded_by"]], fact_id))


def _plain(value: object) -> str | int | float | None:
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} where a value was expected")


def _original(user: str, rows: list[Any], summary: Any) -> dict[str, Any]:  # noqa: ANN401 - rows of sqlite3
    """One user of the original; its summary stands for the first ``message_count`` messages (S0-8)."""
    node_id = _node_id(user)
    texts = [_original_message(seq, row, node_id) for seq, row in enumerate(rows)]
    covered = min(int(summary["message_count"]), len(texts)) if summary is not None and summary["summary"] else 0
    while 0 < covered < len(texts) and texts[covered]["role"] != "user":
        covered -= 1  # cut only before a user message (conflict 9)
    first, last = (_moment(rows[0]["timestamp"]), _moment(rows[-1]["timestamp"]))
    nodes = [_original_summary(str(summary["summary"]), covered, _moment(summary["updated_at"]))] if covered else []
    return {
        "key": f"dm:{node_id}", "kind": "dm", "node_id": node_id, "memory_enabled": True, "compact_every": None,
        "epoch": 0, "epoch_start_seq": 0, "anchor_seq": covered, "next_seq": len(texts), "facts_upto_seq": 0,
        "prefix_rev": int(bool(covered)), "disclosed_at": first, "closed_at": None, "created_at": first,
        "last_active": last, "messages": texts, "summaries": nodes, "facts": [],
    }  # fmt: skip


def _original_message(seq: int, row: Any, node_id: str) -> dict[str, Any]:  # noqa: ANN401 - a row of sqlite3
    role = str(row["role"])
    return {
        "seq": seq, "epoch": 0, "role": role if role in ("user", "assistant") else "notice",
        "sender": node_id if role == "user" else "", "sender_name": "", "content": str(row["content"]),
        "created_at": _moment(row["timestamp"]), "packet_id": None, "is_command": False, "tokens_est": 0,
        "status": "final", "reply_to": None,
    }  # fmt: skip


def _original_summary(text: str, covered: int, updated_at: float) -> dict[str, Any]:
    return {
        "epoch": 0, "level": 1, "start_seq": 0, "end_seq": covered - 1, "text": text, "status": "completed",
        "quality": "llm", "strategy": "rolling", "version": 1, "attempts": 0, "model": "", "prompt_rev": 0,
        "src_count": covered, "src_tokens": 0, "tokens": estimate(text), "retention": None, "generation_ms": None,
        "error": "", "created_at": updated_at, "completed_at": updated_at, "base": None, "replaces": None,
        "parent": None,
    }  # fmt: skip


def _moment(value: object) -> float:
    """Seconds since 1970 from what a version of the original stored: that, or a date in UTC."""
    try:
        return float(str(value))
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise UsageError(f"{str(value)!r} is not a time") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _node_id(user: str) -> str:
    """``!a1b2c3d4`` from what the original stored: that, hex digits, or a decimal number."""
    if re.fullmatch(r"!?[0-9a-fA-F]{8}", user):
        return f"!{user.lstrip('!').lower()}"
    if user.isdecimal() and int(user) < 2**32:
        return f"!{int(user):08x}"
    raise UsageError(f"user {user!r} is not a node")
