"""Finding old messages: full-text search over one conversation's current epoch, without a model."""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from meshai.errors import StorageError
from meshai.memory.recall import (
    DEFAULT_WEIGHTS,
    Candidate,
    Question,
    Term,
    Weights,
    author_fits,
    inverse_frequency,
    read_question,
    spread,
    term_scores,
    wants_recall,
)
from meshai.memory.words import fold, pieces
from meshai.storage.database import Queries

log = logging.getLogger(__name__)

MAX_TERMS = 12
MAX_POSTINGS = 3000  # rows looked at for one question: bounds its time whatever the archive's size
MAX_CANDIDATES = 300  # rows whose text is read
MAX_NAMES = 100

_COLUMNS = "id, seq, role, sender, sender_name, created_at, content"
_TALK = "role <> 'notice' AND is_command = 0"


@dataclass(frozen=True, slots=True)
class Hit:
    """A message found, best first; ``score`` compares hits of one search only."""

    message_id: int
    seq: int
    role: str
    sender_name: str
    created_at: float
    content: str
    score: float


@dataclass(frozen=True, slots=True)
class _Scope:
    conv_id: int
    epoch: int
    before_seq: int

    @property
    def token(self) -> str:
        return f'scope:"c{self.conv_id}e{self.epoch}"'


async def search(
    q: Queries,
    *,
    conv_id: int,
    epoch: int,
    question: str,
    asker: str | None = None,
    exclude_from_seq: int | None = None,
    limit: int = 10,
    now: float = 0.0,
    gated: bool = False,
    weights: Weights = DEFAULT_WEIGHTS,
) -> list[Hit]:
    """The messages of this conversation and epoch that answer ``question``, best first, at most ``limit``.

    ``asker``: the node id of who asks, so that "I" and "my" mean their rows. Rows with ``seq >= exclude_from_seq``
    (the window) and near-duplicates are left out. ``gated``: nothing unless the gate of docs/memory.md §2.4 opens.
    A broken index is searched around, row by row; other storage errors are raised.
    """
    scope = _Scope(conv_id, epoch, 2**62 if exclude_from_seq is None else exclude_from_seq)
    read = read_question(question, await _names(q, scope))
    if not read.terms or limit < 1:
        return []
    try:
        found = await _look_up(q, scope, read)
        rows = await _rows(q, scope, "id", _best(found))
    except StorageError as error:
        log.warning("full-text index: %s; searching conversation %d row by row", error, conv_id)
        rows = await _scan(q, scope, read)
        found = _counted(read, rows)
    if gated and not wants_recall(question, {text: len(ids) for text, ids in found.postings.items()}):
        return []
    return await _ranked(q, scope, read, found, rows, asker=asker, limit=limit, weights=weights)


@dataclass(frozen=True, slots=True)
class _Found:
    """Message ids by term, and what a hit of each term is worth."""

    postings: dict[str, list[int]]
    worth: dict[str, float]


async def _names(q: Queries, scope: _Scope) -> list[str]:
    """Who speaks in the conversation; a skip scan, so that a long archive costs no more than a short one."""
    rows = await q.fetch_all(
        "WITH RECURSIVE names (name) AS ("
        " SELECT min(sender_name) FROM messages WHERE conv_id = ?1 AND epoch = ?2 AND sender_name > ''"
        " UNION ALL SELECT (SELECT min(sender_name) FROM messages"
        "  WHERE conv_id = ?1 AND epoch = ?2 AND sender_name > name) FROM names WHERE name IS NOT NULL"
        ") SELECT name FROM names WHERE name IS NOT NULL LIMIT ?3",
        (scope.conv_id, scope.epoch, MAX_NAMES),
    )
    return [row[0] for row in rows]


async def _look_up(q: Queries, scope: _Scope, question: Question) -> _Found:
    """Where the terms occur: the rare ones first, until the effort is spent."""
    size, expected = await _expected(q, scope, question.terms)
    chosen: list[Term] = []
    effort = 0.0
    for term in sorted(question.terms, key=lambda term: (expected[term.text], term.text)):
        effort += expected[term.text]
        if chosen and (effort > MAX_POSTINGS or len(chosen) == MAX_TERMS):
            break
        chosen.append(term)
    one = "SELECT * FROM (SELECT {}, rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid DESC LIMIT {})"
    sql = " UNION ALL ".join(one.format(place, MAX_POSTINGS) for place in range(len(chosen)))
    rows = await q.fetch_all(sql, [f"{scope.token} AND content:({term.match})" for term in chosen])
    postings: dict[str, list[int]] = {term.text: [] for term in chosen}
    for place, rowid in rows:
        postings[chosen[place].text].append(rowid)
    worth = {text: inverse_frequency(size, round(n)) for text, n in expected.items()}
    worth |= {text: inverse_frequency(size, len(ids)) for text, ids in postings.items()}
    return _Found(postings, worth)


async def _expected(q: Queries, scope: _Scope, terms: Sequence[Term]) -> tuple[int, dict[str, float]]:
    """The number of messages in scope, and in how many of them each term may be expected."""
    total, size = await _sizes(q, scope)
    one = "SELECT {}, sum(doc) FROM messages_words WHERE term >= ? AND term <= ?"
    sql = " UNION ALL ".join(one.format(place) for place in range(len(terms)))
    bounds: list[str] = []
    for term in terms:
        first = term.text[0] if term.kind == "letters" else term.text
        bounds += [first, first + "\U0010ffff" if term.kind == "prefix" else first]
    rows = await q.fetch_all(sql, bounds)
    share = size / max(total, size, 1)
    return size, {terms[place].text: (count or 0) * share for place, count in rows}


async def _sizes(q: Queries, scope: _Scope) -> tuple[int, int]:
    row = await q.fetch_one(
        "SELECT (SELECT coalesce(max(id), 0) FROM messages), next_seq - iif(epoch = ?2, epoch_start_seq, 0)"
        " FROM conversations WHERE id = ?1",
        (scope.conv_id, scope.epoch),
    )
    return (int(row[0]), max(int(row[1]), 1)) if row else (1, 1)


def _best(found: _Found) -> list[int]:
    """The ids whose text is worth reading."""
    scores: dict[int, float] = {}
    for text, ids in found.postings.items():
        worth = found.worth[text]
        for rowid in ids:
            scores[rowid] = scores.get(rowid, 0.0) + worth
    return heapq.nlargest(MAX_CANDIDATES, scores, key=lambda rowid: (scores[rowid], rowid))


async def _rows(q: Queries, scope: _Scope, column: Literal["id", "seq"], values: Sequence[int]) -> list[Candidate]:
    if not values:
        return []
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND epoch = ? AND seq < ? AND {_TALK}"
        f" AND {column} IN (SELECT value FROM json_each(?))",
        (scope.conv_id, scope.epoch, scope.before_seq, json.dumps(list(values))),
    )
    return [Candidate(*row) for row in rows]


async def _scan(q: Queries, scope: _Scope, question: Question) -> list[Candidate]:
    """Without the index: this conversation's newest rows that hold a term."""
    words = [root for term in question.terms[:MAX_TERMS] for root in {_root(term), _root(term).capitalize()}]
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM messages WHERE conv_id = ? AND epoch = ? AND seq < ? AND {_TALK}"
        f" AND ({' OR '.join(['content LIKE ?'] * len(words))}) ORDER BY seq DESC LIMIT ?",
        (scope.conv_id, scope.epoch, scope.before_seq, *(f"%{word}%" for word in words), MAX_CANDIDATES),
    )
    return [Candidate(*row) for row in rows]


def _root(term: Term) -> str:
    """The letters a word shares with its stem; letters and digits only, so no wildcard of LIKE is among them."""
    word = term.word.lower()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, term.text, strict=False)))
    return word[:same] or word


def _counted(question: Question, rows: Sequence[Candidate]) -> _Found:
    weight = {term.text: 1.0 for term in question.terms}
    scores = term_scores(question, rows, weight)
    postings = {text: [row.message_id for row in rows if text in scores[row.seq]] for text in weight}
    size = max((row.seq for row in rows), default=0) + 1
    return _Found(postings, {text: inverse_frequency(size, len(ids)) for text, ids in postings.items()})


async def _ranked(
    q: Queries,
    scope: _Scope,
    question: Question,
    found: _Found,
    rows: list[Candidate],
    *,
    asker: str | None,
    limit: int,
    weights: Weights,
) -> list[Hit]:
    own = term_scores(question, rows, found.worth, weights)
    when = {row.seq: row.created_at for row in rows}
    by_seq = {row.seq: row for row in rows}
    reached = spread(own, when, weights)
    near = [seq for seq in heapq.nlargest(3 * limit + 30, reached, key=reached.__getitem__) if seq not in by_seq]
    for row in await _rows(q, scope, "seq", near):
        by_seq[row.seq] = row
        when[row.seq] = row.created_at
    if near:
        reached = spread(own, when, weights)
    scored = [
        (reached[seq] * (weights.author if author_fits(question, row, asker) else 1.0), seq, row)
        for seq, row in by_seq.items()
        if reached.get(seq, 0.0) > 0.0
    ]
    scored.sort(key=lambda entry: (-entry[0], -entry[1]))
    return _without_repeats(scored, limit)


def _without_repeats(scored: Sequence[tuple[float, int, Candidate]], limit: int) -> list[Hit]:
    hits: list[Hit] = []
    seen: set[str] = set()
    for score, seq, row in scored:
        said = " ".join(pieces(fold(row.content)))
        if said in seen:
            continue
        seen.add(said)
        hits.append(Hit(row.message_id, seq, row.role, row.sender_name, row.created_at, row.content, score))
        if len(hits) == limit:
            break
    return hits
