"""Words of a text as the full-text index sees them, and which of them mean nothing in a search."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib import resources
from itertools import takewhile

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"[^\W_]+")
# Thai to Khmer, Kana, Han, Hangul: written without spaces; the same ranges as in the view messages_fts_source
_UNSPACED_CLASS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"
)
_UNSPACED = re.compile(f"[{_UNSPACED_CLASS}]+")
_SPACED_OR_NOT = re.compile(f"[{_UNSPACED_CLASS}]+|[^\\W_{_UNSPACED_CLASS}]+")

# Letters that in Chinese and Japanese join words rather than being part of one; bigrams do not reach over them
_JOINERS = re.compile(
    "(?:什么|什麼|怎么|怎麼|哪里|哪裡|哪个|哪個|多少|为什么|為什麼|我们|我們|你们|你們|他们|他們|时候|時候|"
    "[的了吗嗎呢吧是在我你您他她它们們这這那哪谁誰和与與也都就还還很有没沒不把被给給跟到会會要说說])"
)
_SCRIPT_RUN = re.compile(r"[\u3041-\u309f]+|[\u30a0-\u30ffー]+|[\uac00-\ud7a3]+|[^\u3041-\u30ff\uac00-\ud7a3]+")
_HIRAGANA = re.compile(r"[\u3041-\u309f]+")
_ACCENTS = re.compile("([a-z])[\\u0300-\\u036f]+")


def fold(text: str) -> str:
    """Lower case, Latin letters without accents: FTS5's ``unicode61 remove_diacritics 2``."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    return unicodedata.normalize("NFC", _ACCENTS.sub(r"\1", unicodedata.normalize("NFD", lowered)))


@cache
def stop_words() -> dict[str, frozenset[str]]:
    """Function words by language code; "kana" are Japanese ones as pairs of letters, "first person" is I and my."""
    lists: dict[str, set[str]] = {}
    current: set[str] = set()
    for line in resources.files(__package__).joinpath("lists/stop_words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = lists.setdefault(line.strip("[]"), set())
        elif not line.startswith("#"):
            current.update(line.split())
    return {name: frozenset(found) for name, found in lists.items()}


def words(text: str) -> list[str]:
    """The runs of letters and digits, as they are written."""
    return _WORD.findall(text)


def pieces(text: str) -> list[str]:
    """Like ``words``, but a run of an unspaced script is a piece of its own."""
    return (_ASCII_WORD if text.isascii() else _SPACED_OR_NOT).findall(text)


def is_unspaced(piece: str) -> bool:
    """Is it written in a script without spaces between words?"""
    return _UNSPACED.fullmatch(piece) is not None


def language(text: str) -> str:
    """The language whose function words are the most frequent in the text; English when nothing speaks for another."""
    found = set(words(text.lower()))
    counts = {name: len(found & stop) for name, stop in stop_words().items() if len(name) == 2}
    best = max(counts, key=lambda name: (counts[name], name == "en"))
    return best if counts[best] else "en"


def grams(run: str) -> list[str]:
    """Search terms of an unspaced run: pairs of letters that do not reach over function words or a change of script."""
    terms: list[str] = []
    for part in _JOINERS.split(run):
        for stretch in _SCRIPT_RUN.findall(part):
            if len(stretch) > 1:
                terms += [stretch[at : at + 2] for at in range(len(stretch) - 1)]
            elif not _HIRAGANA.fullmatch(stretch):
                terms.append(stretch)
    return [term for term in dict.fromkeys(terms) if term not in stop_words()["kana"]]


def is_near(one: str, other: str) -> bool:
    """Do two words differ by one letter: changed, left out, added, or two swapped?"""
    short, long = sorted((one, other), key=len)
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(short, long, strict=False)))
    if len(short) == len(long):
        swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
        return short[at + 1 :] == long[at + 1 :] or swapped
    return len(long) - len(short) == 1 and short[at:] == long[at + 1 :]
