"""Scoring old messages against a question; no input or output here.

What is weighed and by how much was found on LoCoMo turns (docs/memory.md §3.3): ``benchmarks/bench_recall.py`` prints
what each idea adds, with a standard error, on conversations it was not chosen on.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from meshai.memory.dates import DAY_S, day_of
from meshai.memory.question import Question, Term
from meshai.memory.stem import stem
from meshai.memory.words import fold, pieces, stop_words

SESSION_GAP_S = 3600.0
"""Messages belong together when less than this lies between them (docs/memory.md §2.4)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the score; the defaults are what ``search`` uses, the benchmark turns them off one by one."""

    saturation: float = 0.6  # BM25's k1: a word that is repeated adds little
    length: float = 0.45  # BM25's b: messages are short, so length says little
    neighbours: tuple[float, ...] = (0.7, 0.5, 0.3, 0.2)  # a word one, two, three, four messages away
    related: float = 0.4  # a related word instead of the word itself
    dates: float = 0.8  # the message is of a day the question names
    author: float = 1.5  # the author fits the question
    kind: float = 1.2  # a time for "when", a number for "how many"


DEFAULT_WEIGHTS = Weights()


class Candidate(NamedTuple):
    """A stored message that may answer."""

    message_id: int
    seq: int
    role: str
    sender: str
    sender_name: str
    created_at: float
    content: str


@dataclass(frozen=True, slots=True)
class Worth:
    """What a hit is worth: by term, and by related stem; ``span_days`` is how long the conversation has lasted."""

    terms: Mapping[str, float]
    stems: Mapping[str, float]
    span_days: float = 1.0


SOURCES = 60
"""So many of the best rows raise their neighbours."""


def inverse_frequency(messages: int, holding: float) -> float:
    """BM25's weight of a word that ``holding`` of ``messages`` have."""
    return math.log(1 + (messages - min(holding, messages) + 0.5) / (holding + 0.5))


def score_rows(
    question: Question, rows: Sequence[Candidate], worth: Worth, weights: Weights = DEFAULT_WEIGHTS
) -> dict[int, dict[str, float]]:
    """What each term scores in each row, by sequence number; "" is the score of its date."""
    table = _stem_table(question.terms, worth, weights)
    others = [term for term in question.terms if term.kind != "stem"]
    starts = frozenset(root[:2] for root in table)
    seen: dict[str, Sequence[tuple[str, float]]] = {}
    texts = [_counted(row.content, table, starts, seen, others) for row in rows]
    mean = sum(length for _, length in texts) / len(texts) if texts else 1.0
    k1 = weights.saturation
    scores: dict[int, dict[str, float]] = {}
    for row, (counts, length) in zip(rows, texts, strict=True):
        norm = k1 * (1 - weights.length + weights.length * length / max(mean, 1.0))
        here = {text: worth.terms.get(text, 0.0) * n * (k1 + 1) / (n + norm) for text, n in counts.items()}
        if question.dates and (dated := _date_score(question, row, worth)):
            here[""] = weights.dates * dated
        if here:
            scores[row.seq] = here
    return scores


def spread(
    scores: Mapping[int, Mapping[str, float]], when: Mapping[int, float], weights: Weights = DEFAULT_WEIGHTS
) -> dict[int, float]:
    """The score of every row and of its neighbours: each term counts once, from where it is nearest.

    ``when``: time by sequence number; a neighbour of unknown time is taken to be near.
    """
    steps = _steps(weights)
    best: dict[int, dict[str, float]] = {seq: dict(terms) for seq, terms in scores.items()}
    for seq in heapq.nlargest(SOURCES, scores, key=lambda seq: (sum(scores[seq].values()), seq)):
        time = when[seq]
        terms = [(term, score) for term, score in scores[seq].items() if term]
        for step, share in steps:
            if abs(when.get(seq + step, time) - time) < SESSION_GAP_S:
                _raise(best.setdefault(seq + step, {}), terms, share)
    return {seq: sum(terms.values()) for seq, terms in best.items()}


def reached(
    seq: int,
    scores: Mapping[int, Mapping[str, float]],
    when: Mapping[int, float],
    weights: Weights = DEFAULT_WEIGHTS,
) -> float:
    """The score of one message by its neighbours, once its own time is known: see ``spread``."""
    best = dict(scores.get(seq, {}))
    for step, share in _steps(weights):
        source = seq - step
        if source in scores and abs(when[source] - when[seq]) < SESSION_GAP_S:
            _raise(best, [(term, score) for term, score in scores[source].items() if term], share)
    return sum(best.values())


def _steps(weights: Weights) -> list[tuple[int, float]]:
    return [(way * n, share) for n, share in enumerate(weights.neighbours, 1) for way in (-1, 1)]


def _raise(best: dict[str, float], terms: Sequence[tuple[str, float]], factor: float) -> None:
    for term, score in terms:
        if score * factor > best.get(term, 0.0):
            best[term] = score * factor


def author_factor(question: Question, row: Candidate, asker: str | None, weights: Weights = DEFAULT_WEIGHTS) -> float:
    """More for a row by whom the question is about."""
    return weights.author if _author_fits(question, row, asker) else 1.0


def kind_factor(question: Question, content: str, weights: Weights = DEFAULT_WEIGHTS) -> float:
    """More for a text that holds the kind of thing that is asked for."""
    return weights.kind if question.wants and _holds(question.wants, content) else 1.0


def _author_fits(question: Question, row: Candidate, asker: str | None) -> bool:
    if len(question.named) == 1:
        return row.sender_name in question.named
    if question.author == "user":
        return row.role == "user" and (not asker or not row.sender or row.sender == asker)
    return bool(question.author) and row.role == question.author


def _holds(kind: Literal["time", "number"], content: str) -> bool:
    if _DIGIT.search(content) or not stop_words()[kind].isdisjoint(pieces(content.lower())):
        return True
    letters = _TIME_LETTERS if kind == "time" else _NUMBER_LETTERS
    return not content.isascii() and letters.search(content) is not None


def _stem_table(terms: Sequence[Term], worth: Worth, weights: Weights) -> dict[str, list[tuple[str, float]]]:
    """By stem, the terms it counts for and as how much of a hit."""
    table: dict[str, list[tuple[str, float]]] = {}
    asked = {term.text for term in terms}
    for term in terms:
        if term.kind != "stem":
            continue
        table.setdefault(term.text, []).append((term.text, 1.0))
        own = max(worth.terms.get(term.text, 0.0), 0.1)
        for other in term.related.keys() - asked if weights.related else ():
            share = weights.related * min(1.0, worth.stems.get(other, 0.0) / own)
            if share > 0.0:
                table.setdefault(other, []).append((term.text, share))
    return table


def _counted(
    content: str,
    table: Mapping[str, Sequence[tuple[str, float]]],
    starts: frozenset[str],
    seen: dict[str, Sequence[tuple[str, float]]],
    others: Sequence[Term],
) -> tuple[dict[str, float], int]:
    """How often each term occurs, and the number of words.

    ``seen`` remembers what words count for; a word that starts like no stem in ``starts`` is not worth stemming.
    """
    folded = fold(content)
    words = pieces(folded)
    counts: dict[str, float] = {}
    for word in words:
        hits = seen.get(word)
        if hits is None:
            hits = seen[word] = table.get(stem(word), ()) if word[:2] in starts else ()
        for text, share in hits:
            counts[text] = counts.get(text, 0.0) + share
    for term in others:
        is_letters = term.kind == "letters"
        n = folded.count(term.text) if is_letters else sum(word.startswith(term.text) for word in words)
        if n:
            counts[term.text] = float(n)
    return counts, len(words)


def _date_score(question: Question, row: Candidate, worth: Worth) -> float:
    day = day_of(row.created_at)
    return 0.0 if day is None else max(mention.fits(day, worth.span_days) for mention in question.dates)


def span_days(first: float, last: float) -> float:
    """How many days lie between two times; at least one."""
    return max((last - first) / DAY_S, 1.0)


_DIGIT = re.compile(r"\d")
_TIME_LETTERS = re.compile("[昨今月週周年]|明天|明日|어제|오늘|내일|[년월주]")
_NUMBER_LETTERS = re.compile("[一二三四五六七八九十两]")
