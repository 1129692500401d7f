"""Calls of models: figures of the last 10 000, and the exact prompts of the last 1 000 answers for ``replay``."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from meshai.llm.base import CallRecord, ChatMessage, Purpose
from meshai.storage.database import Queries, Row, Transaction

KEEP_CALLS = 10_000
KEEP_PROMPTS = 1_000


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A row of ``llm_calls``; ``prompt`` is empty once the ring has passed it."""

    id: int
    conv_id: int | None
    inbound_id: int | None
    purpose: str
    endpoint: str
    model: str
    prompt_est: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_ms: int
    ms: int
    outcome: str
    created_at: float
    prompt: tuple[ChatMessage, ...]


async def record(
    tx: Transaction,
    call: CallRecord,
    inbound_id: int | None = None,
    prompt: Sequence[ChatMessage] | None = None,
    *,
    prefix_sha: str = "",
) -> int:
    """Store a call. ``inbound_id`` and ``prompt`` default to those of its request; prompts are kept of answers only."""
    request = call.request
    messages = request.messages if prompt is None else tuple(prompt)
    keeps = call.purpose is Purpose.REPLY
    row_id = await tx.insert(
        "INSERT INTO llm_calls (conv_id, inbound_id, purpose, endpoint, model, prompt_est, prompt_tokens,"
        " cached_tokens, completion_tokens, first_token_ms, ms, prefix_sha, outcome, prompt, created_at) VALUES"
        " ((SELECT id FROM conversations WHERE id = ?), (SELECT id FROM inbound WHERE id = ?),"
        " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            request.conv_id,
            inbound_id if inbound_id is not None else request.inbound_id,
            str(call.purpose),
            call.endpoint,
            call.model,
            request.tokens_est,
            call.usage.prompt_tokens,
            call.usage.cached_tokens,
            call.usage.completion_tokens,
            call.first_token_ms,
            call.ms,
            prefix_sha,
            str(call.outcome),
            pack(messages) if keeps else None,
            call.started_at,
        ),
    )
    await tx.execute("DELETE FROM llm_calls WHERE id <= ?", (row_id - KEEP_CALLS,))
    if keeps:
        await _drop_old_prompts(tx)
    return row_id


async def of_question(q: Queries, inbound_id: int) -> list[StoredCall]:
    """The calls behind the answer to a question, in order."""
    rows = await q.fetch_all("SELECT * FROM llm_calls WHERE inbound_id = ? ORDER BY id", (inbound_id,))
    return [_call(row) for row in rows]


async def of_message(q: Queries, message_id: int) -> list[StoredCall]:
    """The calls behind an answer or a question given by its message."""
    rows = await q.fetch_all(
        "SELECT l.* FROM llm_calls l JOIN inbound i ON i.id = l.inbound_id LEFT JOIN answers a ON a.inbound_id = i.id"
        " WHERE i.message_id = ?1 OR a.message_id = ?1 GROUP BY l.id ORDER BY l.id",
        (message_id,),
    )
    return [_call(row) for row in rows]


async def latest(q: Queries, conv_id: int, *, purpose: Purpose = Purpose.REPLY, limit: int = 1) -> list[StoredCall]:
    """The newest calls of a conversation for a purpose, newest first."""
    rows = await q.fetch_all(
        "SELECT * FROM llm_calls WHERE conv_id = ? AND purpose = ? ORDER BY id DESC LIMIT ?",
        (conv_id, str(purpose), limit),
    )
    return [_call(row) for row in rows]


def pack(messages: Sequence[ChatMessage]) -> bytes:
    """A prompt as compressed JSON."""
    text = json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "replace"), 6)


def unpack(blob: bytes | None) -> tuple[ChatMessage, ...]:
    """A prompt from compressed JSON; empty when there is none."""
    if not blob:
        return ()
    return tuple(ChatMessage(role, content) for role, content in json.loads(zlib.decompress(blob)))


async def _drop_old_prompts(tx: Transaction) -> None:
    await tx.execute(
        "UPDATE llm_calls SET prompt = NULL WHERE prompt IS NOT NULL AND id <="
        " (SELECT id FROM llm_calls WHERE prompt IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (KEEP_PROMPTS,),
    )


def _call(row: Row) -> StoredCall:
    values = {name: row[name] for name in row.keys() if name != "prefix_sha"}  # noqa: SIM118
    values["prompt"] = unpack(values["prompt"])
    return StoredCall(**values)
