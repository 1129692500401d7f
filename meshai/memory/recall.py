"""Which old messages answer a question: reading the question, scoring rows, the gate. No input or output here.

The measure behind every number is the share of evidence found on LoCoMo turns; ``make bench`` prints what each
idea adds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from meshai.memory.stem import stem
from meshai.memory.words import fold, grams, is_unspaced, language, pieces, stop_words

SESSION_GAP_S = 3600.0
"""Neighbours belong together when less than this lies between them (docs/memory.md §2.4)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the score; the defaults are what ``search`` uses."""

    saturation: float = 0.5  # BM25's k1: a word that is repeated adds little
    length: float = 0.3  # BM25's b: messages are short, so length says little
    neighbours: tuple[float, ...] = (0.7, 0.5, 0.3)  # a word one, two, three messages away
    author: float = 1.5  # the author fits the question


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for: a stem, the beginning of a word, or letters of an unspaced script."""

    text: str
    kind: Literal["stem", "prefix", "letters"]
    match: str  # the FTS5 expression: quoted letters and digits only, nothing of it is syntax
    word: str  # as it is written, for searching without the index


@dataclass(frozen=True, slots=True)
class Question:
    """A question, read."""

    text: str
    terms: tuple[Term, ...]
    named: frozenset[str]  # sender names that occur in it
    author: str  # whose rows fit: 'user' ("I", "my"), 'assistant' ("did you say"), '' either


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored message that may answer; ``content`` is what it says."""

    message_id: int
    seq: int
    role: str
    sender: str
    sender_name: str
    created_at: float
    content: str


def read_question(text: str, names: Collection[str] = ()) -> Question:
    """What a question looks for. ``names`` are the senders' names in the conversation: they choose rows, not words."""
    found = pieces(text.replace("\x00", " "))
    folded = {fold(piece) for piece in found}
    named = frozenset(name for name in names if _is_named(name, folded))
    tongue = language(text)
    skip = stop_words()["en"] | {fold(word) for word in stop_words()[tongue]}
    skip |= {fold(word) for name in named for word in pieces(name)}
    terms: dict[str, Term] = {}
    by_prefix = tongue != "en"
    for piece in found:
        for term in _terms(piece, skip, by_prefix=by_prefix):
            terms.setdefault(term.text, term)
    return Question(text, tuple(terms.values()), named, _author(text))


def wants_recall(question: str, hits_df: Mapping[str, int] | Iterable[int]) -> bool:
    """The gate of docs/memory.md §2.4: is old text worth its place in the prompt?

    ``hits_df``: in how many messages each term of the question occurs. A term must hit, and the message must be a
    question, have a cue ("remember", "last time"), or hit with two rare terms.
    """
    counts = [n for n in (hits_df.values() if isinstance(hits_df, Mapping) else hits_df) if n > 0]
    if not counts:
        return False
    return bool(_QUESTION.search(question) or _CUE.search(question)) or sum(n <= RARE for n in counts) >= 2


RARE = 5
"""A term in at most this many messages is rare."""


def inverse_frequency(messages: int, holding: int) -> float:
    """BM25's weight of a word that ``holding`` of ``messages`` have."""
    return math.log(1 + (messages - holding + 0.5) / (holding + 0.5))


def term_scores(
    question: Question, rows: Sequence[Candidate], weight: Mapping[str, float], weights: Weights = DEFAULT_WEIGHTS
) -> dict[int, dict[str, float]]:
    """What each term scores in each row, by sequence number."""
    texts = [_Text(row.content) for row in rows]
    mean = sum(text.length for text in texts) / len(texts) if texts else 1.0
    scores: dict[int, dict[str, float]] = {}
    for row, text in zip(rows, texts, strict=True):
        norm = weights.saturation * (1 - weights.length + weights.length * text.length / max(mean, 1.0))
        scores[row.seq] = {
            term.text: weight.get(term.text, 0.0) * count * (weights.saturation + 1) / (count + norm)
            for term in question.terms
            if (count := text.count(term))
        }
    return scores


def spread(
    scores: Mapping[int, Mapping[str, float]], when: Mapping[int, float], weights: Weights = DEFAULT_WEIGHTS
) -> dict[int, float]:
    """The score of every row and of its neighbours: each term counts once, from where it is nearest.

    ``when``: time by sequence number; a neighbour of unknown time is taken to be near.
    """
    best: dict[int, dict[str, float]] = {}
    for seq, terms in scores.items():
        for step, share in _steps(weights):
            place = seq + step
            if abs(when.get(place, when[seq]) - when[seq]) >= SESSION_GAP_S:
                continue
            here = best.setdefault(place, {})
            for term, score in terms.items():
                if score * share > here.get(term, 0.0):
                    here[term] = score * share
    return {seq: sum(terms.values()) for seq, terms in best.items()}


def _steps(weights: Weights) -> list[tuple[int, float]]:
    return [(0, 1.0), *((way * n, share) for n, share in enumerate(weights.neighbours, 1) for way in (-1, 1))]


def author_fits(question: Question, row: Candidate, asker: str | None) -> bool:
    """Is the row by whom the question is about?"""
    if len(question.named) == 1:
        return row.sender_name in question.named
    if question.author == "user":
        return row.role == "user" and (not asker or not row.sender or row.sender == asker)
    return bool(question.author) and row.role == question.author


class _Text:
    """A message as the scoring sees it."""

    __slots__ = ("_folded", "_stems", "_words", "length")

    def __init__(self, content: str) -> None:
        self._folded = fold(content)
        self._words = pieces(self._folded)
        self._stems = Counter(map(stem, self._words))
        self.length = len(self._words)

    def count(self, term: Term) -> int:
        if term.kind == "stem":
            return self._stems.get(term.text, 0)
        if term.kind == "letters":
            return self._folded.count(term.text)
        return sum(word.startswith(term.text) for word in self._words)


_FIRST_PERSON_LETTERS = re.compile("我|私|僕|俺|わたし|ぼく|저는|제가|나는|내가|나의|내 |제 ")
_ASSISTANT = re.compile(
    r"\b(?:did|have|had|do|were|could) you\b.*\b(?:say|said|tell|told|recommend|suggest|mention|explain|answer|"
    r"advise|write)"
    r"|\byou (?:said|told|recommended|suggested|mentioned|explained|answered|advised|wrote|gave)\b"
    r"|\byour (?:answer|advice|suggestion|recommendation|reply|explanation)\b"
    r"|\b(?:hast|hattest) du\b.*\b(?:gesagt|empfohlen|erzählt|erklärt|geantwortet|geraten|vorgeschlagen)"
    r"|\bdeine? (?:antwort|rat|empfehlung)\b"
    r"|\b(?:as-tu|tu as|tu m'as) (?:dit|conseillé|recommandé|répondu)|\b(?:me )?(?:dijiste|recomendaste|sugeriste)\b"
    r"|\b(?:ты|вы)\b.*\b(?:сказал|говорил|советовал|посоветовал|рекомендовал|ответил|объяснил)"
    r"|[你您](?:之前|刚才|上次)?(?:说|告诉|建议|推荐|回答)|教えてくれ|言いましたか|言った",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"[?？؟;]\s*$|[?？؟]|\b(?:who|what|when|where|which|why|how|whose|wer|was|wann|wo|wie|warum|welche\w*|qui|quand|où|quel\w*|"
    r"comment|pourquoi|quién|qué|cuándo|dónde|cuál|cómo|chi|quando|dove|quale|perché|quem|onde|qual|wie|wanneer|waar|kto|"
    r"kiedy|gdzie|jak|кто|что|когда|где|как|какой|какая|какие|сколько|почему|хто|що|коли|де)\b"
    r"|什么|什麼|谁|誰|哪|几|多少|吗|嗎|何|いつ|どこ|どの|ですか|ますか|무엇|언제|어디|누구",
    re.IGNORECASE,
)
_CUE = re.compile(
    r"\b(?:remember|remind|again|last time|earlier|before|previously|forgot|as i said|told you|talked about|erinner\w*|"
    r"nochmal|letztes mal|vorhin|neulich|früher|rappel\w*|souvien\w*|dernière fois|recuerda\w*|última vez|ricord\w*|"
    r"lembra\w*|herinner\w*|вчера|помни\w*|напомни\w*|раньше|прошлый раз|снова)\b"
    r"|记得|記得|上次|之前|以前|覚えて|前に|기억",
    re.IGNORECASE,
)


def _is_named(name: str, folded: Collection[str]) -> bool:
    words = [fold(word) for word in pieces(name)]
    proper = [word for word in words if len(word) > 1 and not word.isdigit() and word not in stop_words()["en"]]
    return bool(proper) and (all(word in folded for word in proper) or (proper[0] in folded and len(proper[0]) > 2))


def _author(text: str) -> str:
    if _ASSISTANT.search(text):
        return "assistant"
    if _FIRST_PERSON_LETTERS.search(text) or not stop_words()["first person"].isdisjoint(
        piece.lower() for piece in pieces(text)
    ):
        return "user"
    return ""


def _terms(piece: str, skip: Collection[str], *, by_prefix: bool) -> Iterable[Term]:
    folded = fold(piece)
    if is_unspaced(piece):
        for gram in grams(folded):
            yield Term(gram, "letters", '"' + " ".join(gram) + '"', gram)
    elif folded in skip or (len(folded) == 1 and not folded.isdigit()):
        return
    elif len(folded) > 4 and folded.isalpha() and (by_prefix or not folded.isascii()):
        start = folded[: -2 if len(folded) > 5 else -1]
        yield Term(start, "prefix", f'("{start}"* OR "{folded}")', piece)
    else:
        yield Term(stem(folded), "stem", f'"{folded}"', piece)
