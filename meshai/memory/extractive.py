"""A summary without a model: the sentences that say most, word for word. Deterministic, a few milliseconds."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshai.memory.validate import orders_model

_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+|(?<=[。！？])")
_WORD = re.compile(r"\w[\w'’.-]*\w|\w")
_SALIENT = re.compile(r"\d|https?://|[A-Z]{2,}")
_GREETING = re.compile(
    r"^\W*(hi|hello|hey|thanks?( you)?( a lot| so much)?|ok(ay)?|yes|no|good (morning|evening|night|day)|bye|cheers"
    r"|hallo|moin|danke( dir| schön)?|ja|nein|tschüss|привет|спасибо|да|нет|пока|你好|谢谢|こんにちは|ありがとう)\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Said:
    """One message as a digest sees it."""

    is_user: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Sentence:
    order: int
    text: str
    words: tuple[str, ...]
    is_user: bool


def digest(said: Sequence[Said], *, limit: int, measure: Callable[[str], int], previous: str = "") -> str:
    """At most ``limit`` tokens of the most telling sentences, in their order; "" when nothing was said.

    ``previous`` is an earlier summary whose sentences compete with the new ones, so that a rewritten summary keeps
    its old knowledge in proportion.
    """
    sentences = _sentences(said, previous)
    if not sentences:
        return _fallback(said, limit, measure)
    seen_in = Counter(word for sentence in sentences for word in set(sentence.words))
    ranked = sorted(sentences, key=lambda s: (-_score(s, seen_in, len(sentences)), s.order))
    chosen: list[_Sentence] = []
    known: set[str] = set()
    left = limit
    for sentence in ranked:
        if known and len(known.intersection(sentence.words)) > 0.8 * len(set(sentence.words)):
            continue  # says nothing new
        cost = measure(sentence.text) + 1
        if cost <= left:
            chosen.append(sentence)
            known.update(sentence.words)
            left -= cost
        if left < 5:
            break
    if not chosen:
        return _fallback(said, limit, measure) or _shorten(ranked[0].text, limit, measure)
    return " ".join(sentence.text for sentence in sorted(chosen, key=lambda s: s.order))


def _sentences(said: Sequence[Said], previous: str) -> list[_Sentence]:
    found: list[_Sentence] = []
    for is_user, text in [(True, previous), *((one.is_user, one.text) for one in said)]:
        for piece in _SENTENCE.split(text):
            sentence = " ".join(piece.split())
            words = tuple(word.casefold() for word in _WORD.findall(sentence))
            if words and not _GREETING.match(sentence) and not orders_model(sentence):
                ended = sentence if sentence[-1] in ".!?…。！？" else sentence + "."
                found.append(_Sentence(len(found), ended, words, is_user))
    return found


def _score(sentence: _Sentence, seen_in: Counter[str], total: int) -> float:
    """Rare words a word; a bonus for what people look up later: numbers, names, addresses. Users before the bot."""
    words = set(sentence.words)
    rare = sum(math.log(1 + total / seen_in[word]) for word in words) / math.sqrt(len(words) + 4)
    salient = 0.6 * min(len(_SALIENT.findall(sentence.text)), 3)
    names = 0.3 * min(sum(word[:1].isupper() for word in sentence.text.split()[1:]), 3)
    question = 0.7 if sentence.text.endswith(("?", "？")) else 1.0
    return (rare + salient + names) * question * (1.25 if sentence.is_user else 1.0)


def _fallback(said: Sequence[Said], limit: int, measure: Callable[[str], int]) -> str:
    """Only greetings and signs: the newest of them, so that the range is not empty."""
    for one in reversed(said):
        text = " ".join(one.text.split())
        if text and not orders_model(text):
            return _shorten(text, limit, measure)
    return f"{len(said)} short messages." if said else ""


def _shorten(text: str, limit: int, measure: Callable[[str], int]) -> str:
    size = len(text)
    while size > 1 and measure(text[:size]) > limit:
        size = size * 3 // 4
    return text[:size]
