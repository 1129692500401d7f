"""Reading a question: what to look for, whose words it asks for, whether old messages are worth looking up at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from meshai.memory.dates import Mention, mentions
from meshai.memory.related import related
from meshai.memory.stem import stem
from meshai.memory.words import fold, grams, is_unspaced, language, pieces, stop_words

RARE = 5
"""A term in at most this many messages is rare."""


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for: a stem, the beginning of a word, or letters of an unspaced script.

    ``match`` is its FTS5 expression: quoted letters and digits, nothing of it is syntax. ``word`` is as it is written.
    ``related``: words that may answer for it, by their stem.
    """

    text: str
    kind: Literal["stem", "prefix", "letters"]
    match: str
    word: str
    related: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, read."""

    text: str
    terms: tuple[Term, ...] = ()
    dates: tuple[Mention, ...] = ()
    named: frozenset[str] = frozenset()  # senders' names that occur in it
    author: str = ""  # whose rows fit: 'user' ("I", "my"), 'assistant' ("did you say"), '' either
    wants: Literal["time", "number", ""] = ""  # what kind of answer it asks for


def read_question(text: str, names: Collection[str] = (), now: float = 0.0) -> Question:
    """What a question looks for. ``names`` are the senders' names in the conversation: they choose rows, not words."""
    clean = text.replace("\x00", " ")
    found = pieces(clean)
    folded = {fold(piece) for piece in found}
    named = frozenset(name for name in names if _is_named(name, folded))
    tongue = language(clean)
    skip = _skipped("en") | _skipped(tongue) | {fold(word) for name in named for word in pieces(name)}
    terms: dict[str, Term] = {}
    for piece in found:
        for term in _terms(piece, skip, english=tongue == "en"):
            terms.setdefault(term.text, term)
    return Question(clean, tuple(terms.values()), tuple(mentions(clean, now)), named, _author(clean), _wants(clean))


def wants_recall(question: str, hits_df: Mapping[str, int] | Iterable[int]) -> bool:
    """The gate of docs/memory.md §2.4: is old text worth its place in the prompt?

    ``hits_df``: in how many messages each term of the question occurs. A term must hit, and the message must be a
    question, have a cue ("remember", "last time"), or hit with two rare terms.
    """
    counts = [n for n in (hits_df.values() if isinstance(hits_df, Mapping) else hits_df) if n > 0]
    if not counts:
        return False
    return bool(_QUESTION.search(question) or _CUE.search(question)) or sum(n <= RARE for n in counts) >= 2


@cache
def _skipped(tongue: str) -> frozenset[str]:
    return frozenset(fold(word) for word in stop_words()[tongue])


def _is_named(name: str, folded: Collection[str]) -> bool:
    words = [fold(word) for word in pieces(name)]
    proper = [word for word in words if len(word) > 1 and not word.isdigit() and word not in stop_words()["en"]]
    return bool(proper) and (all(word in folded for word in proper) or (proper[0] in folded and len(proper[0]) > 2))


def _author(text: str) -> str:
    if _ASSISTANT.search(text):
        return "assistant"
    own = stop_words()["first person"]
    if _FIRST_PERSON_LETTERS.search(text) or not own.isdisjoint(piece.lower() for piece in pieces(text)):
        return "user"
    return ""


def _wants(text: str) -> Literal["time", "number", ""]:
    if _WHEN.search(text):
        return "time"
    return "number" if _HOW_MANY.search(text) else ""


def _terms(piece: str, skip: Collection[str], *, english: bool) -> Iterable[Term]:
    folded = fold(piece)
    if is_unspaced(piece):
        for gram in grams(folded):
            yield Term(gram, "letters", '"' + " ".join(gram) + '"', gram)
    elif folded in skip or (len(folded) == 1 and not folded.isdigit()):
        return
    elif len(folded) > 4 and folded.isalpha() and not (english and folded.isascii()):
        # endings of other languages: two letters less, and what Porter would leave of it in the index
        root, start = stem(folded), folded[: -2 if len(folded) > 5 else -1]
        start = root if start.startswith(root) else start
        yield Term(start, "prefix", f'("{start}"* OR "{folded}")', piece)
    else:
        root = stem(folded)
        yield Term(root, "stem", f'"{folded}"', piece, related(root) if english else {})


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
    r"[?？؟]|\b(?:who|what|when|where|which|why|how|whose|wer|was|wann|wo|wie|warum|welche\w*|qui|quand|où|"
    r"quel\w*|comment|pourquoi|quién|qué|cuándo|dónde|cuál|cómo|chi|quando|dove|quale|perché|quem|onde|qual|"
    r"wanneer|waar|kto|kiedy|gdzie|jak|кто|что|когда|где|как|какой|какая|какие|сколько|почему|хто|що|коли|де)\b"
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
_WHEN = re.compile(
    r"\b(?:when|what (?:date|day|time|year|month)|which (?:day|year|month)|how long ago|wann|quand|cuándo|quando|"
    r"wanneer|kiedy|когда|коли)\b|什么时候|什麼時候|几点|幾點|哪天|いつ|何時|何日|언제",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    r"\bhow (?:many|much|long|old|often|far|big|high|tall)\b|\b(?:wie ?viele?|wie (?:lange|oft|alt|hoch|weit)|combien|"
    r"cuánt[oa]s?|quant[oiae]|hoeveel|ile|сколько|скільки)\b|多少|几个|幾個|多久|いくつ|何人|何個|몇",
    re.IGNORECASE,
)
