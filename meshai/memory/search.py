"""Finding old messages: full-text search over one conversation's epoch, without a model.

The index gives the messages that hold the rarest words of the question; their text is then scored in ``recall``.
The effort is bounded, so an archive of years answers as fast as one of weeks.
"""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from meshai.errors import StorageError
from meshai.memory.question import RARE, Question, Term, read_question, wants_recall
from meshai.memory.recall import (
    DEFAULT_WEIGHTS,
    Candidate,
    Weights,
    Worth,
    author_factor,
    inverse_frequency,
    kind_factor,
    reached,
    score_rows,
    span_days,
    spread,
)
from meshai.memory.words import fold, is_near, pieces
from meshai.storage.database import Queries

log = logging.getLogger(__name__)

MAX_TERMS = 12  # the rarest words of a question; more only cost time
MAX_RELATED = 40  # related words whose frequency is looked up
MAX_RELATED_HITS = 3000  # messages of everybody that hold the related words of one term
MAX_POSTINGS = 1000  # index entries read
MAX_CANDIDATES = 100  # messages whose text is read
MAX_NAMES = 100
MOST = 0.5  # a conversation with more than this share of all messages is filtered by row, which is faster
DATE_WORTH = 2.5  # of a date, when candidates are chosen: about that of a month's name

_COLUMNS = ("id", "seq", "role", "sender", "sender_name", "created_at", "content")
_TALK = "role <> 'notice' AND is_command = 0"


@dataclass(frozen=True, slots=True)
class Hit:
    """A message found; ``score`` compares hits of one search only."""

    message_id: int
    seq: int
    role: str
    sender_name: str
    created_at: float
    content: str
    score: float


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

    ``asker``: the node id of who asks, so that "I" and "my" mean their rows; ``now`` gives "yesterday" a meaning. Rows
    with ``seq >= exclude_from_seq`` (the window) and repeated texts are left out. ``gated``: nothing unless the gate of
    docs/memory.md §2.4 opens. A broken index is searched around, row by row; other storage errors are raised.
    """
    scope = _Scope(conv_id, epoch, 2**62 if exclude_from_seq is None else exclude_from_seq)
    names, sizes = await _setting(q, scope)
    read = read_question(question, names, now)
    if limit < 1 or not (read.terms or read.dates):
        return []
    try:
        read, found = await _look_up(q, scope, sizes, read, weights)
        rows = await _rows(q, scope, "id", _best(found))
    except StorageError as error:
        log.warning("full-text index: %s; searching conversation %d row by row", error, conv_id)
        rows = await _scan(q, scope, read)
        found = _from_rows(read, rows)
    if gated and not wants_recall(question, _hit_counts(found, rows)):
        return []
    scored = await _scored(q, scope, read, found.worth, rows, asker, weights, limit)
    return _without_repeats(scored, limit)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The messages searched."""

    conv_id: int
    epoch: int
    before_seq: int

    @property
    def token(self) -> str:
        """What the index knows the conversation and epoch by."""
        return f'scope:"c{self.conv_id}e{self.epoch}"'


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many messages there are in all and in scope, and how long the conversation has lasted."""

    total: int
    scope: int
    span_days: float


@dataclass(frozen=True, slots=True)
class _Entry:
    """One query of the index: what it looks for, how many rows it may give, and how much each counts."""

    key: str
    match: str
    expected: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class _Found:
    """Message ids by term, those of related words and dates, and what hits are worth."""

    postings: dict[str, list[int]]
    other: list[tuple[float, list[int]]]
    worth: Worth


async def _setting(q: Queries, scope: _Scope) -> tuple[list[str], _Sizes]:
    """Who speaks in the conversation, and how long it is.

    Names are found by skipping from one to the next, so a long archive costs no more than a short one.
    """
    row = await q.fetch_one(
        "WITH RECURSIVE names (name) AS ("
        " SELECT min(sender_name) FROM messages WHERE conv_id = ?1 AND epoch = ?2 AND sender_name > ''"
        " UNION ALL SELECT (SELECT min(sender_name) FROM messages"
        "  WHERE conv_id = ?1 AND epoch = ?2 AND sender_name > name) FROM names WHERE name IS NOT NULL LIMIT ?3"
        ") SELECT (SELECT json_group_array(name) FROM names WHERE name IS NOT NULL),"
        " (SELECT coalesce(max(id), 1) FROM messages), c.next_seq - iif(c.epoch = ?2, c.epoch_start_seq, 0),"
        " (SELECT created_at FROM messages WHERE conv_id = ?1 AND seq >= c.epoch_start_seq ORDER BY seq LIMIT 1),"
        " (SELECT created_at FROM messages WHERE conv_id = ?1 ORDER BY seq DESC LIMIT 1)"
        " FROM conversations c WHERE c.id = ?1",
        (scope.conv_id, scope.epoch, MAX_NAMES),
    )
    if row is None:
        return [], _Sizes(1, 1, 1.0)
    size = max(int(row[2]), 1)
    return json.loads(row[0]), _Sizes(max(int(row[1]), size), size, span_days(row[3] or 0.0, row[4] or 0.0))


async def _look_up(
    q: Queries, scope: _Scope, sizes: _Sizes, question: Question, weights: Weights
) -> tuple[Question, _Found]:
    """Where the terms occur: the rare ones first, until the effort is spent."""
    share = sizes.scope / sizes.total
    counts, related = await _counts(q, question.terms, with_related=weights.related > 0.0)
    terms = [await _spelled(q, term) if not counts[term.text] else term for term in question.terms]
    if terms != list(question.terms):
        question = replace(question, terms=tuple({term.text: term for term in terms}.values()))
        counts |= (await _counts(q, question.terms, with_related=False))[0]
    entries = _entries(question, counts, related, share, weights)
    found = await _postings(q, "" if share > MOST else f"{scope.token} AND ", entries)
    held = {term.text: counts[term.text] * share for term in question.terms}
    held |= {entry.key: float(len(ids)) for entry, ids in found if entry.share == 1.0 and len(ids) < MAX_POSTINGS}
    worth = Worth(
        {text: inverse_frequency(sizes.scope, n) for text, n in held.items()},
        {root: inverse_frequency(sizes.scope, n * share) for root, n in related.items()},
        sizes.span_days,
    )
    postings = {entry.key: ids for entry, ids in found if entry.share == 1.0}
    other = [(_other_worth(entry, worth), ids) for entry, ids in found if entry.share != 1.0]
    return question, _Found(postings, other, worth)


def _other_worth(entry: _Entry, worth: Worth) -> float:
    return entry.share * (worth.terms[entry.key] if entry.key else DATE_WORTH)


async def _counts(q: Queries, terms: Sequence[Term], *, with_related: bool) -> tuple[dict[str, int], dict[str, int]]:
    """In how many messages of everybody each term occurs, and each related stem.

    For an unspaced script it is the number of its first letter: never too low.
    """
    one = "SELECT {}, coalesce(sum(doc), 0) FROM messages_words WHERE term >= ? AND term <= ?"
    parts = [one.format(place) for place in range(len(terms))]
    values: list[str] = []
    for term in terms:
        first = term.text[0] if term.kind == "letters" else term.text
        values += [first, first + "\U0010ffff" if term.kind == "prefix" else first]
    roots = list(dict.fromkeys(root for term in terms for root in term.related))[:MAX_RELATED] if with_related else []
    if roots:
        parts.append(f"SELECT term, doc FROM messages_words WHERE term IN ({', '.join('?' * len(roots))})")
    rows = await q.fetch_all(" UNION ALL ".join(parts), [*values, *roots]) if parts else []
    counts = {terms[row[0]].text: int(row[1]) for row in rows if isinstance(row[0], int)}
    return counts, {row[0]: int(row[1]) for row in rows if isinstance(row[0], str)}


async def _spelled(q: Queries, term: Term) -> Term:
    """For a word nobody has ever used, the most frequent one that differs by one letter: names and typing errors."""
    if term.kind != "stem" or len(term.text) < 5:
        return term
    start = term.text[:3]
    rows = await q.fetch_all(
        "SELECT term, doc FROM messages_words WHERE term >= ? AND term <= ? AND length(term) BETWEEN ? AND ?",
        (start, start + "\U0010ffff", len(term.text) - 1, len(term.text) + 1),
    )
    near = [(doc, word) for word, doc in rows if is_near(word, term.text)]
    if not near:
        return term
    word = max(near)[1]
    return replace(term, text=word, match=f'"{word}"*')


def _entries(
    question: Question, counts: dict[str, int], related: dict[str, int], share: float, weights: Weights
) -> list[_Entry]:
    """The queries of the index, cheapest first, within the effort allowed; the rarest term whatever it costs."""
    entries = [_Entry(term.text, f"content:({term.match})", counts[term.text] * share) for term in question.terms]
    entries.sort(key=lambda entry: (entry.expected, entry.key))
    del entries[MAX_TERMS:]
    for term in question.terms:
        count, words = _rarest_related(term, related)
        if words:
            entries.append(_Entry(term.text, f"content:({' OR '.join(words)})", count * share, weights.related))
    phrases = [phrase for mention in question.dates for phrase in mention.matches()]
    if phrases and weights.dates:
        entries.append(_Entry("", f"date:({' OR '.join(phrases)})", 0.0, weights.dates))
    kept, effort = entries[:1], entries[0].expected
    for entry in sorted(entries[1:], key=lambda entry: (entry.expected, entry.key)):
        effort += entry.expected
        if effort <= MAX_POSTINGS:
            kept.append(entry)
    return kept


def _rarest_related(term: Term, related: dict[str, int]) -> tuple[int, list[str]]:
    """Related words, quoted, and how often they occur together; those that everybody uses say too little."""
    words: list[str] = []
    total = 0
    for count, word in sorted((related[root], word) for root, word in term.related.items() if root in related):
        if total + count > MAX_RELATED_HITS:
            break
        total += count
        words.append(f'"{word}"')
    return total, words


async def _postings(q: Queries, within: str, entries: Sequence[_Entry]) -> list[tuple[_Entry, list[int]]]:
    """The newest message ids of each entry."""
    one = "SELECT * FROM (SELECT {}, rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid DESC LIMIT {})"
    sql = " UNION ALL ".join(
        one.format(place, MAX_POSTINGS if entry.key else MAX_CANDIDATES) for place, entry in enumerate(entries)
    )
    ids: list[list[int]] = [[] for _ in entries]
    for place, rowid in await q.fetch_all(sql, [f"{within}{entry.match}" for entry in entries]):
        ids[place].append(rowid)
    return list(zip(entries, ids, strict=True))


def _best(found: _Found) -> list[int]:
    """The ids whose text is worth reading, by the words they hold."""
    scores: dict[int, float] = {}
    weighed = [(found.worth.terms[text], ids) for text, ids in found.postings.items()]
    for worth, ids in [*weighed, *found.other]:
        for rowid in ids:
            scores[rowid] = scores.get(rowid, 0.0) + worth
    return heapq.nlargest(MAX_CANDIDATES, scores, key=lambda rowid: (scores[rowid], rowid))


def _hit_counts(found: _Found, rows: Sequence[Candidate]) -> list[int]:
    """How often each term hits, for the gate; one that hits in the window only, the question itself say, does not.

    A related word or a date is a hit, but not a rare word of the person's own.
    """
    seen = {row.message_id for row in rows}
    counts = [len(ids) for ids in found.postings.values() if not seen.isdisjoint(ids)]
    return counts + [RARE + 1 for _, ids in found.other if not seen.isdisjoint(ids)]


async def _rows(q: Queries, scope: _Scope, column: Literal["id", "seq"], values: Iterable[int]) -> list[Candidate]:
    """The rows in scope with these ids or sequence numbers; nothing outside the scope ever leaves here."""
    # CROSS JOIN and "+" keep SQLite from walking the whole conversation instead of looking up each value
    place = "m.id = wanted.value AND +m.conv_id = ?2" if column == "id" else "m.conv_id = ?2 AND m.seq = wanted.value"
    rows = await q.fetch_all(
        f"SELECT {', '.join(f'm.{name}' for name in _COLUMNS)} FROM json_each(?1) wanted CROSS JOIN messages m"
        f" ON {place} WHERE +m.epoch = ?3 AND +m.seq < ?4 AND {_TALK}",
        (json.dumps(list(values)), scope.conv_id, scope.epoch, scope.before_seq),
    )
    return [Candidate(*row) for row in rows]


async def _scan(q: Queries, scope: _Scope, question: Question) -> list[Candidate]:
    """Without the index: this conversation's newest rows that hold a term."""
    roots = {_root(term) for term in question.terms[:MAX_TERMS]}
    words = sorted(roots | {root.capitalize() for root in roots if not root.isascii()})
    if not words:
        return []
    rows = await q.fetch_all(
        f"SELECT {', '.join(_COLUMNS)} FROM messages WHERE conv_id = ? AND epoch = ? AND seq < ? AND {_TALK}"
        f" AND ({' OR '.join(['content LIKE ?'] * len(words))}) ORDER BY seq DESC LIMIT ?",
        (scope.conv_id, scope.epoch, scope.before_seq, *(f"%{word}%" for word in words), MAX_CANDIDATES),
    )
    return [Candidate(*row) for row in rows]


def _root(term: Term) -> str:
    """The letters a word shares with its stem; letters and digits only, so no wildcard of LIKE is among them."""
    word = term.word.lower()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, term.text, strict=False)))
    return word[:same] or word


def _from_rows(question: Question, rows: Sequence[Candidate]) -> _Found:
    """What the index would have said of these rows."""
    scores = score_rows(question, rows, Worth({term.text: 1.0 for term in question.terms}, {}))
    postings = {
        term.text: [row.message_id for row in rows if term.text in scores.get(row.seq, {})] for term in question.terms
    }
    size = max((row.seq for row in rows), default=0) + 1
    worth = Worth({text: inverse_frequency(size, len(ids)) for text, ids in postings.items()}, {})
    return _Found(postings, [], worth)


async def _scored(
    q: Queries,
    scope: _Scope,
    question: Question,
    worth: Worth,
    rows: Sequence[Candidate],
    asker: str | None,
    weights: Weights,
    limit: int,
) -> list[tuple[float, Candidate]]:
    """The rows and the neighbours they raise, best first; the newer one of equals."""
    own = score_rows(question, rows, worth, weights)
    by_seq = {row.seq: row for row in rows}
    when = {row.seq: row.created_at for row in rows}
    total = spread(own, when, weights)
    best = heapq.nlargest(2 * limit + 20, total, key=lambda seq: (total[seq], seq))
    for row in await _rows(q, scope, "seq", [seq for seq in best if seq not in by_seq]):
        by_seq[row.seq] = row
        when[row.seq] = row.created_at
        total[row.seq] = reached(row.seq, own, when, weights)
    scored = [
        (total[seq] * author_factor(question, row, asker, weights), row)
        for seq, row in by_seq.items()
        if total.get(seq, 0.0) > 0.0
    ]
    scored = heapq.nlargest(2 * limit + 20, scored, key=_newest_of_best)
    scored = [(score * kind_factor(question, row.content, weights), row) for score, row in scored]
    return sorted(scored, key=_newest_of_best, reverse=True)


def _newest_of_best(scored: tuple[float, Candidate]) -> tuple[float, int]:
    return scored[0], scored[1].seq


def _without_repeats(scored: Iterable[tuple[float, Candidate]], limit: int) -> list[Hit]:
    """The first of each text: people repeat themselves, and so do bots."""
    hits: dict[str, Hit] = {}
    for score, row in scored:
        said = " ".join(pieces(fold(row.content)))
        if said not in hits:
            hits[said] = Hit(
                row.message_id, row.seq, row.role, row.sender_name, row.created_at, row.content, round(score, 6)
            )
        if len(hits) == limit:
            break
    return list(hits.values())
