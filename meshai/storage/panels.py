"""Read-only queries of the operator's page; every one of them is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshai.storage.database import Queries

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node with its switches."""

    node_id: str
    long_name: str
    short_name: str
    first_heard: float
    last_heard: float
    hops: int | None
    snr: float | None
    rssi: int | None
    parts_sent: int
    parts_delivered: int
    parts_relayed: int
    parts_failed: int
    ignored_no_pki: int
    key_alarm_at: float | None
    is_blocked: bool
    blocked_until: float | None
    keys: int

    @property
    def delivery_percent(self) -> float | None:
        """Of the parts whose fate is known, how many the node confirmed."""
        known = self.parts_delivered + self.parts_relayed + self.parts_failed
        return 100.0 * self.parts_delivered / known if known else None


@dataclass(frozen=True, slots=True)
class TalkLine:
    """A conversation; ``messages`` counts everything ever archived in it."""

    id: int
    key: str
    kind: str
    node_id: str | None
    name: str
    messages: int
    last_active: float
    closed_at: float | None
    memory_enabled: bool


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """An answer and how many of its parts are in which state."""

    id: int
    message_id: int | None
    kind: str
    states: dict[str, int]


@dataclass(frozen=True, slots=True)
class CallLine:
    """A model call without its prompt."""

    id: int
    conv_id: int | None
    inbound_id: int | None
    purpose: str
    endpoint: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_ms: int
    ms: int
    outcome: str
    created_at: float
    has_prompt: bool


@dataclass(frozen=True, slots=True)
class Question:
    """What an answer answers."""

    id: int
    node_id: str
    content: str
    state: str
    reason: str
    hops: int | None
    snr: float | None
    rssi: int | None
    received_at: float


_NODE = (
    "SELECT n.node_id, n.long_name, n.short_name, n.first_heard, n.last_heard, n.hops, n.snr, n.rssi, n.parts_sent,"
    " n.parts_delivered, n.parts_relayed, n.parts_failed, n.ignored_no_pki, n.key_alarm_at,"
    " b.node_id IS NOT NULL AND (b.until IS NULL OR b.until > ?1), b.until,"
    " (SELECT count(*) FROM identities i WHERE i.node_id = n.node_id AND i.revoked_at IS NULL)"
    " FROM {0} n LEFT JOIN blocks b ON b.node_id = n.node_id"
)


async def nodes(q: Queries, *, now: float, words: str = "", offset: int = 0, limit: int = 50) -> list[NodeLine]:
    """The nodes whose id or name contains ``words``, the latest heard first."""
    rows = await q.fetch_all(
        _NODE.format(
            "(SELECT * FROM nodes"
            " WHERE ?2 = '' OR instr(lower(node_id || ' ' || long_name || ' ' || short_name), ?2) > 0"
            " ORDER BY last_heard DESC, node_id LIMIT ?3 OFFSET ?4)"
        )
        + " ORDER BY n.last_heard DESC, n.node_id",
        (now, words.lower(), limit, offset),
    )
    return [_node(row) for row in rows]


async def node(q: Queries, node_id: str, *, now: float) -> NodeLine | None:
    """One node."""
    row = await q.fetch_one(_NODE.format("nodes") + " WHERE n.node_id = ?2", (now, node_id))
    return _node(row) if row else None


async def nodes_with_waiting_keys(q: Queries, *, limit: int = 50) -> list[str]:
    """Nodes that have shown more than one key nobody has revoked."""
    rows = await q.fetch_all(
        "SELECT node_id FROM identities WHERE revoked_at IS NULL GROUP BY node_id HAVING count(*) > 1 LIMIT ?", (limit,)
    )
    return [str(row[0]) for row in rows]


_TALK = (
    "SELECT c.id, c.key, c.kind, c.node_id, coalesce(n.long_name, ''),"
    " (SELECT count(*) FROM messages m WHERE m.conv_id = c.id), c.last_active, c.closed_at, c.memory_enabled"
    " FROM {0} c LEFT JOIN nodes n ON n.node_id = c.node_id"
)


async def talks(q: Queries, *, node_id: str = "", offset: int = 0, limit: int = 50) -> list[TalkLine]:
    """Conversations, the latest active first; of one node if given."""
    rows = await q.fetch_all(
        _TALK.format(
            "(SELECT * FROM conversations WHERE ?1 = '' OR node_id = ?1"
            " ORDER BY last_active DESC, id DESC LIMIT ?2 OFFSET ?3)"
        )
        + " ORDER BY c.last_active DESC, c.id DESC",
        (node_id, limit, offset),
    )
    return [_talk(row) for row in rows]


async def talk(q: Queries, conv_id: int) -> TalkLine | None:
    """One conversation."""
    row = await q.fetch_one(_TALK.format("conversations") + " WHERE c.id = ?", (conv_id,))
    return _talk(row) if row else None


async def answers_of(q: Queries, message_ids: Sequence[int]) -> dict[int, list[AnswerLine]]:
    """The answers behind messages: those the bot wrote, by message id, oldest first."""
    marks = ",".join("?" * len(message_ids))
    rows = await q.fetch_all(
        "SELECT a.id, a.message_id, a.kind, o.state, count(o.id) FROM answers a LEFT JOIN outbound o"
        " ON o.answer_id = a.id AND o.reason <> 'superseded'"
        f" WHERE a.message_id IN ({marks}) AND a.kind <> 'tapback' GROUP BY a.id, o.state ORDER BY a.id",
        tuple(message_ids),
    )
    found: dict[int, dict[int, AnswerLine]] = {}
    for answer_id, message_id, kind, state, count in rows:
        line = found.setdefault(message_id, {}).setdefault(answer_id, AnswerLine(answer_id, message_id, kind, {}))
        if state is not None:
            line.states[state] = int(count)
    return {message_id: list(lines.values()) for message_id, lines in found.items()}


async def question(q: Queries, inbound_id: int) -> Question | None:
    """The question with this id."""
    row = await q.fetch_one(
        "SELECT id, node_id, content, state, reason, hops, snr, rssi, received_at FROM inbound WHERE id = ?",
        (inbound_id,),
    )
    return Question(*row) if row else None


_CALL = (
    "SELECT id, conv_id, inbound_id, purpose, endpoint, model, prompt_tokens, cached_tokens, completion_tokens,"
    " first_token_ms, ms, outcome, created_at, prompt IS NOT NULL FROM llm_calls"
)


async def calls(q: Queries, *, before: int = 0, limit: int = 50) -> list[CallLine]:
    """Model calls, newest first; ``before`` 0: from the newest."""
    rows = await q.fetch_all(f"{_CALL} WHERE id < ? ORDER BY id DESC LIMIT ?", (before if before > 0 else 2**62, limit))
    return [_call(row) for row in rows]


async def call_prompt(q: Queries, call_id: int) -> tuple[CallLine, bytes | None] | None:
    """One model call and its packed prompt."""
    row = await q.fetch_one(_CALL.replace(" FROM llm_calls", ", prompt FROM llm_calls WHERE id = ?"), (call_id,))
    return (_call(row[:14]), row[14]) if row else None


async def fates_by_hour(q: Queries, *, now: float, hours: int = 24) -> list[dict[str, int]]:
    """Packets handed over in each of the last hours, by what became of them; the last entry is the running hour."""
    since = now - hours * HOUR_S
    rows = await q.fetch_all(
        "SELECT cast((sent_at - ?1) / 3600 AS INTEGER), state, count(*) FROM outbound"
        " WHERE sent_at >= ?1 AND sent_at < ?2 GROUP BY 1, 2",
        (since, now),
    )
    table: list[dict[str, int]] = [{} for _ in range(hours)]
    for hour, state, count in rows:
        table[min(int(hour), hours - 1)][str(state)] = int(count)
    return table


_COUNTERS = {
    "nodes": "SELECT count(*) FROM nodes",
    "messages": "SELECT coalesce(max(id), 0) FROM messages",  # rows are erased rarely; counting a million takes long
    "conversations": "SELECT count(*) FROM conversations",
    "parts_sent": "SELECT coalesce(sum(parts_sent), 0) FROM nodes",
    "parts_delivered": "SELECT coalesce(sum(parts_delivered), 0) FROM nodes",
    "parts_relayed": "SELECT coalesce(sum(parts_relayed), 0) FROM nodes",
    "parts_failed": "SELECT coalesce(sum(parts_failed), 0) FROM nodes",
}


async def counters(q: Queries) -> dict[str, int]:
    """Figures over the whole database."""
    return {name: int(await q.fetch_value(sql)) for name, sql in _COUNTERS.items()}


async def data_version(q: Queries) -> int:
    """Changes whenever another connection has committed something."""
    return int(await q.fetch_value("PRAGMA data_version"))


def _node(row: Sequence[object]) -> NodeLine:
    values = list(row)
    values[14] = bool(values[14])
    return NodeLine(*values)  # type: ignore[arg-type]


def _talk(row: Sequence[object]) -> TalkLine:
    values = list(row)
    values[8] = bool(values[8])
    return TalkLine(*values)  # type: ignore[arg-type]


def _call(row: Sequence[object]) -> CallLine:
    values = list(row)
    values[13] = bool(values[13])
    return CallLine(*values)  # type: ignore[arg-type]
