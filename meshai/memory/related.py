"""Words that answer for each other: a question about pets is answered by a message about a dog."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from meshai.memory.stem import stem

_NONE: Mapping[str, str] = MappingProxyType({})


def related(root: str) -> Mapping[str, str]:
    """What may stand in an answer where the question has this English stem: words by their stem."""
    return _table().get(root, _NONE)


@cache
def _table() -> dict[str, Mapping[str, str]]:
    table: dict[str, dict[str, str]] = {}
    text = resources.files(__package__).joinpath("lists/related_en.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        before, _, after = line.lstrip("= ").partition(":")
        heads = [stem(word) for word in before.split()]
        members = {stem(word): word for word in (after or before).split()}
        for head in heads:
            table.setdefault(head, {}).update((root, word) for root, word in members.items() if root != head)
    return {head: MappingProxyType(words) for head, words in table.items()}
