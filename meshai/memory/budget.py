"""How many tokens of a prompt each part may have; docs/memory.md §2.4. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PROMPT = 8000
"""Tokens of a prompt when the configuration does not say (S3-18)."""
SAFETY = 0.05
"""Share of the context kept free for what no estimate sees: the chat template."""
SHARES: Mapping[str, int] = {"persona": 15, "facts": 8, "window": 42, "chain": 12, "recall": 20}
QUESTION_PERCENT = 25
MIN_CONTEXT = 512
"""A model with less is not usable; the prompt is planned for this much all the same."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens, as the estimate counts them: ``usable`` for the whole prompt, the others at most for a part."""

    usable: int
    question: int
    persona: int
    facts: int
    window: int
    chain: int
    recall: int


def plan(
    *,
    context_tokens: int,
    reply_tokens: int,
    configured: int = 0,
    factor: float = 1.0,
    shares: Mapping[str, int] | None = None,
) -> Budget:
    """The budget of one prompt.

    ``context_tokens`` is what the model takes, the answer's ``reply_tokens`` come out of it first; ``configured``
    caps the prompt (0: 8000). ``factor`` is true tokens per estimated token, learned from the server.
    """
    context = max(context_tokens, MIN_CONTEXT)
    reserve = min(max(reply_tokens, 0), context // 2)
    real = min(int(context * (1 - SAFETY)) - reserve, configured or DEFAULT_PROMPT)
    usable = max(int(real / factor), 64)
    percent = {**SHARES, **(shares or {})}
    return Budget(
        usable=usable,
        question=usable * QUESTION_PERCENT // 100,
        **{name: usable * percent[name] // 100 for name in SHARES},
    )
