"""Looking something up in the knowledge texts: for the offline answerer, and for a person whose model is down."""

from __future__ import annotations

from collections.abc import Sequence

from meshai.knowledge.index import Hit, TextIndex, content_words
from meshai.knowledge.passages import Passage, built_in


class Notes:
    """The package's texts and their index, made at the first question."""

    def __init__(self) -> None:
        self._index: TextIndex | None = None

    def close(self) -> None:
        """Free the index; the next question makes it anew."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def fitting(self, words: Sequence[str]) -> list[Passage]:
        """The passages that fit the words well, the best first, then the others of its text."""
        if self._index is None:
            self._index = TextIndex([(f"{p.title} {p.heading} {p.keywords}", p.body) for p in built_in()])
        hits = self._index.search(words)
        if not hits or not _fits(hits[0]):
            return []
        best = built_in()[hits[0].number]
        rest = [built_in()[hit.number] for hit in hits[1:] if _fits(hit)]
        return [best, *sorted(rest, key=lambda passage: passage.title != best.title)]

    def sentences(self, question: str, max_bytes: int) -> str:
        """Whole sentences of the best passage, at most so many bytes; "" when nothing fits well."""
        passages = self.fitting(content_words(question))
        text = ""
        for sentence in passages[0].sentences if passages else ():
            longer = f"{text} {sentence}".strip()
            if len(longer.encode()) > max_bytes:
                break
            text = longer
        return text


def _fits(hit: Hit) -> bool:
    """Most of the question, or at least two words that are in the passage's head."""
    return hit.heads >= 1 and (hit.coverage >= 0.6 or (hit.heads >= 2 and hit.coverage >= 0.4))
