"""How many tokens a text has: exact for models whose vocabulary is at hand, an estimate by script otherwise."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

log = logging.getLogger(__name__)

Measure = Callable[[str], int]
Mode = Literal["auto", "tiktoken", "estimate"]

PER_MESSAGE = 4
"""Tokens a message costs beside its text: role and separators (S4-16)."""
PER_PROMPT = 3
"""Tokens that open the model's answer."""

# Tokens a character, cl100k's safe side (docs/memory.md §2.4; fitted on English, German, Russian, Chinese, emoji).
_LETTER = 0.24
_PUNCTUATION = 0.80
_LATIN_EXTENDED = 1.81
_CJK = 1.29
_SYMBOL = 2.23
_CYRILLIC_GREEK = 0.52
_OTHER = 1.1  # scripts the vocabularies know badly (Devanagari, Thai, Hebrew …)

_RANGES = (
    (0x80, 0x24F, _LATIN_EXTENDED),
    (0x250, 0x52F, _CYRILLIC_GREEK),
    (0x1E00, 0x1EFF, _LATIN_EXTENDED),
    (0x2000, 0x2BFF, _SYMBOL),
    (0x2E80, 0x9FFF, _CJK),
    (0xAC00, 0xD7AF, _CJK),
    (0xF900, 0xFAFF, _CJK),
    (0xFE00, 0xFE0F, _SYMBOL),
    (0xFF00, 0xFFEF, _CJK),
    (0x1F000, 0x1FFFF, _SYMBOL),
    (0x20000, 0x3FFFF, _CJK),
    (0xE0000, 0x10FFFF, _SYMBOL),
)

_O200K = ("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o", "o1", "o3", "o4", "gpt-oss")


@lru_cache(maxsize=4096)
def _weight(character: str) -> float:
    code = ord(character)
    if code < 0x80:
        return _LETTER if character.isalpha() or character == " " else _PUNCTUATION
    return next((weight for first, last, weight in _RANGES if first <= code <= last), _OTHER)


@lru_cache(maxsize=2048)
def estimate(text: str) -> int:
    """Tokens by the weight of each character's script; rather too many than too few."""
    return math.ceil(sum(map(_weight, text)))


def least_estimate(text: str) -> int:
    """Tokens with a vocabulary that is economical in every script (o200k's weights): no model counts much less."""
    return int(sum(map(_least_weight, text)))


@lru_cache(maxsize=4096)
def _least_weight(character: str) -> float:
    weight = _weight(character)
    return {_LETTER: 0.22, _PUNCTUATION: 0.5, _LATIN_EXTENDED: 0.5, _CJK: 0.6, _SYMBOL: 0.8}.get(weight, 0.29)


def uses_o200k(model: str) -> bool:
    """Is this a model whose vocabulary is o200k_base (gpt-oss adds only special tokens)?"""
    name = model.lower().rsplit("/", 1)[-1]
    return any(name == known or name.startswith((f"{known}-", f"{known}:", f"{known}.")) for known in _O200K)


class TokenCounter:
    """Chooses the way to count for a model; the exact one is loaded in a thread the first time it is wanted."""

    def __init__(self, mode: Mode = "auto", *, load: Callable[[], Measure] | None = None) -> None:
        self._mode = mode
        self._load = load or _load_vocabulary
        self._exact: Measure | None = None
        self._loading: asyncio.Task[None] | None = None

    def measure(self, model: str) -> Measure:
        """A function from text to tokens, at once; the estimate until the vocabulary is ready."""
        if self._mode == "estimate" or (self._mode == "auto" and not uses_o200k(model)):
            return estimate
        if self._exact is None and self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._fetch())
        return self._exact or estimate

    def is_exact(self, model: str) -> bool:
        """Does ``measure`` count this model's own tokens now?"""
        return self._exact is not None and uses_o200k(model) and self._mode != "estimate"

    async def ready(self) -> None:
        """Wait for a load in progress."""
        if self._loading is not None:
            await self._loading

    async def _fetch(self) -> None:
        try:
            self._exact = await asyncio.to_thread(self._load)
        except (OSError, ValueError, ImportError, LookupError) as error:
            log.warning("counting tokens by estimate: the vocabulary cannot be loaded (%s)", error)


def _load_vocabulary() -> Measure:
    from meshai.memory.vocabulary import default_cache, load

    return load(default_cache())


def cut_middle(text: str, limit: int, measure: Measure, marker: str = " […] ") -> str:
    """``text``, or its two ends around ``marker`` so that it measures at most ``limit`` tokens."""
    if limit <= 0:
        return ""
    if measure(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest that fits: measuring grows with the text
        keep = (low + high + 1) // 2
        if measure(_ends(text, keep, marker)) <= limit:
            low = keep
        else:
            high = keep - 1
    return _ends(text, low, marker) if low else ""


def _ends(text: str, keep: int, marker: str) -> str:
    head = (keep * 2 + 2) // 3  # the beginning says more than the end
    tail = keep - head
    return text[:head].rstrip() + marker + (text[len(text) - tail :].lstrip() if tail else "")


__all__ = ["PER_MESSAGE", "PER_PROMPT", "Measure", "TokenCounter", "cut_middle", "estimate", "uses_o200k"]
