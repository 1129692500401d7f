"""The knowledge texts of the package, cut into passages.

A text is Markdown of a plain kind: ``# title``, a ``Source:`` line, and sections of ``## heading``, a ``Keywords:``
line and sentences, the most important first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])")


@dataclass(frozen=True, slots=True)
class Passage:
    """One section of a text."""

    title: str
    heading: str
    keywords: str
    body: str
    source: str

    @property
    def sentences(self) -> list[str]:
        """The body, sentence by sentence."""
        return split_sentences(self.body)


def split_sentences(text: str) -> list[str]:
    """Cut after ``.``, ``!`` or ``?`` where the next word does not begin with a small letter."""
    return [part for part in _SENTENCE_END.split(" ".join(text.split())) if part]


def parse(text: str) -> list[Passage]:
    """The passages of one text."""
    title = source = heading = keywords = ""
    body: list[str] = []
    found: list[Passage] = []

    def close() -> None:
        if heading and body:
            found.append(Passage(title, heading, keywords, "\n".join(body), source))
        body.clear()

    for line in text.splitlines():
        if line.startswith("## "):
            close()
            heading, keywords = line[3:].strip(), ""
        elif line.startswith("# "):
            title = line[2:].strip()
        elif line.startswith("Source:"):
            source = line.removeprefix("Source:").strip()
        elif line.startswith("Keywords:"):
            keywords = line.removeprefix("Keywords:").strip()
        elif line.strip():
            body.append(line.strip())
    close()
    return found


@cache
def built_in() -> tuple[Passage, ...]:
    """Every passage of the package's texts, in a fixed order."""
    folder = resources.files("meshai.knowledge").joinpath("texts")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".md")), key=lambda entry: entry.name)
    return tuple(passage for entry in files for passage in parse(entry.read_text(encoding="utf-8")))
