"""English suffix stripping: Porter's algorithm exactly as SQLite's FTS5 tokenizer ``porter`` does it.

Scoring compares the words of a message with those of a question outside SQLite; the same words must be equal there.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby, pairwise

_VOWELS = frozenset("aeiou")
_MAX_BYTES = 64  # FTS5 leaves longer words, and those of two letters, as they are

# suffix, replacement; the first suffix that fits decides, whether or not its condition (measure > 0) holds
_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "logi": "log", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The stem of a folded word; words that are not ASCII pass unchanged but for ASCII endings, as in FTS5."""
    if len(word) < 3 or len(word.encode()) >= _MAX_BYTES:
        return word
    word = _step_1(word)
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    word = _step_4(word)
    if word.endswith("e"):
        rest = word[:-1]
        count = _measure(rest)
        if count > 1 or (count == 1 and not _ends_consonant_vowel_consonant(rest)):
            word = rest
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _step_1(word: str) -> str:
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    elif word.endswith("ed") and _has_vowel(word[:-2]):
        word = _restore(word[:-2])
    elif word.endswith("ing") and _has_vowel(word[:-3]):
        word = _restore(word[:-3])
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    return word


def _restore(word: str) -> str:
    """What is left of a word without -ed or -ing gets its e back or loses its doubled consonant."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and word[-1] not in "lsz" and _is_consonant(word, len(word) - 1):
        return word[:-1]
    if _measure(word) == 1 and _ends_consonant_vowel_consonant(word):
        return word + "e"
    return word


def _replace(word: str, pairs: dict[str, str]) -> str:
    for suffix, replacement in pairs.items():
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + replacement if _measure(rest) > 0 else word
    return word


def _step_4(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            if suffix == "ion" and not rest.endswith(("s", "t")):
                return word
            return rest if _measure(rest) > 1 else word
    return word


def _is_consonant(word: str, at: int) -> bool:
    letter = word[at]
    if letter == "y":
        return at == 0 or not _is_consonant(word, at - 1)
    return letter not in _VOWELS


def _kinds(word: str) -> list[bool]:
    return [kind for kind, _ in groupby(_is_consonant(word, at) for at in range(len(word)))]


def _measure(word: str) -> int:
    """Porter's m: how often a vowel run is followed by a consonant run."""
    kinds = _kinds(word)
    return sum(1 for before, after in pairwise(kinds) if not before and after)


def _has_vowel(word: str) -> bool:
    return not all(_is_consonant(word, at) for at in range(len(word)))


def _ends_consonant_vowel_consonant(word: str) -> bool:
    at = len(word) - 1
    return (
        at >= 2
        and word[at] not in "wxy"
        and _is_consonant(word, at)
        and not _is_consonant(word, at - 1)
        and _is_consonant(word, at - 2)
    )
