"""Words of distress: answered first, by a fixed sentence, whatever the model does (issue: never a broadcast)."""

from __future__ import annotations

import re
from collections.abc import Sequence


def is_distress(text: str, words: Sequence[str]) -> bool:
    """Whether a text contains one of the words, as whole words and in any case: "sos" but not "sosein"."""
    folded = " ".join(text.split()).casefold()
    return any(re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", folded) for word in words if word.strip())
