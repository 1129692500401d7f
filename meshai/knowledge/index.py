"""Full-text search over a few short texts, in memory (SQLite FTS5, Porter stems, accents ignored).

What counts is how much of the question a text covers, each word weighed by how rare it is here; a word that occurs
nowhere counts as the rarest. So a question about something else stays without an answer instead of getting a wrong one.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

MAX_TERMS = 12
HEAD_WEIGHT = 2.0  # a hit in title, heading or keywords against one in the body
_WORD = re.compile(r"\w[\w+#']*")

STOP_WORDS = frozenset(
    """
    a about actually again all also am an and any are as at be been being but by can could did do does doing done
    for from get give go going got had has have having he hello her here hi him his how i i'd i'll i'm i've if in
    into is it it's its just know let like lot make many may me might mine more most much must my need no not now
    of off ok on one or our out over please put really said say see shall she should so some something still such
    sure take tell than thank thanks that that's the their them then there these they thing things this those to
    told too up us use used using very want was way we well were what what's when where where's which while who
    who's whom whose why will with without work would wrote yes you you're your explain describe detail details
    detailed everything overview remember mean means meaning question answer der die das den dem ein eine einen
    ist sind war wie was wer wo wann warum welche welches welcher ich du mein meine und oder nicht mit von zu auf
    soll kann bitte le la les un une est sont que qui quoi comment el los las es son cual como nehmen nimm
    benutzen verwenden einstellen
    """.split()  # noqa: SIM905 - a list of words reads best as text
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that fits. ``coverage`` is the share of the question, 0 to 1; ``heads``: words in its head."""

    number: int
    coverage: float
    score: float
    heads: int


def content_words(text: str) -> list[str]:
    """The words that carry meaning, each once, in order."""
    words = (word.strip("'").removesuffix("'s").lower() for word in _WORD.findall(text.replace("’", "'")))
    return list(dict.fromkeys(word for word in words if word and word not in STOP_WORDS))[:MAX_TERMS]


class TextIndex:
    """An index over (head, body) pairs; ``number`` in a Hit is the position in that list."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self._count = len(texts)
        # Used on one thread at a time; the offline answerer may be made on another one than it runs on.
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "CREATE VIRTUAL TABLE texts USING fts5(head, body, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        rows = ((number, _storable(head), _storable(body)) for number, (head, body) in enumerate(texts))
        self._db.executemany("INSERT INTO texts (rowid, head, body) VALUES (?, ?, ?)", rows)

    def search(self, words: Sequence[str]) -> list[Hit]:
        """Texts that contain any of the words, the best first; equal ones in the order they were given."""
        total = 0.0
        covered: dict[int, float] = {}
        scores: dict[int, float] = {}
        heads: dict[int, int] = {}
        for word in words:
            in_body, in_head = self._rows(word, "body"), self._rows(word, "head")
            found = in_body | in_head
            weight = math.log1p(self._count / max(1, len(found)))
            total += weight
            for number in found:
                covered[number] = covered.get(number, 0.0) + weight
                heads[number] = heads.get(number, 0) + (number in in_head)
                scores[number] = scores.get(number, 0.0) + weight * (HEAD_WEIGHT if number in in_head else 1.0)
        hits = [Hit(n, covered[n] / total, scores[n] / total, heads[n]) for n in covered]
        return sorted(hits, key=lambda hit: (-hit.score, hit.number))

    def close(self) -> None:
        """Free the memory."""
        self._db.close()

    def _rows(self, word: str, column: str) -> set[int]:
        query = f'{column} : "{_storable(word).replace(chr(34), "")}"'
        return {row[0] for row in self._db.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (query,))}


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", " ")
