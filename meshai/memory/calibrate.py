"""Learning from what servers count: tokens per estimated token, silent truncation, the context they name. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from meshai.storage.calibration import Calibration

SLOWEST = 0.1
"""Weight of the newest observation once there are ten."""
LEAST, MOST = 0.6, 3.0
"""Bounds of the factor: beyond them the server counts something else."""
UNKNOWN_FACTOR = 1.15
"""Until a server has counted, 15 % are kept in reserve (docs/memory.md §2.4)."""
TRUNCATED_BELOW = 0.7
"""A count below this share of the estimate means that the server cut the prompt (Ollama does so with 200 OK)."""
REFUSED_FACTOR = 1.15
"""A prompt refused as too long was underestimated by at least this."""
BELIEVED_S = 86_400.0
"""A learned context is tried anew after a day: the operator may have given the server more."""


def factor(known: Calibration | None) -> float:
    """True tokens per estimated token, on the safe side: mean + 2 sigma."""
    if known is None or known.n == 0:
        return UNKNOWN_FACTOR if known is None else _bounded(max(known.ratio_mean, UNKNOWN_FACTOR))
    spread = 2 * math.sqrt(max(known.ratio_var, 0.0))
    return _bounded(known.ratio_mean + spread)


def observe(known: Calibration, estimated: int, counted: int, now: float) -> Calibration:
    """The calibration after one honest count; ``counted`` 0 (older Ollama, cached prompts) teaches nothing."""
    if counted <= 0 or estimated <= 0:
        return known
    ratio = _bounded(counted / estimated)
    if known.n == 0:
        return replace(known, ratio_mean=ratio, ratio_var=0.01, n=1, updated_at=now)
    weight = max(1 / (known.n + 1), SLOWEST)
    off = ratio - known.ratio_mean
    return replace(
        known,
        ratio_mean=known.ratio_mean + weight * off,
        ratio_var=(1 - weight) * (known.ratio_var + weight * off * off),
        n=known.n + 1,
        n_ctx=known.n_ctx if counted <= known.n_ctx else 0,
        updated_at=now,
    )


def is_truncated(least_possible: int, counted: int) -> bool:
    """Did the server see less than was sent? ``least_possible``: tokens with the most economical vocabulary."""
    return 0 < counted < TRUNCATED_BELOW * least_possible


def truncated(known: Calibration, counted: int, now: float) -> Calibration:
    """The server's real context is what it counted."""
    return replace(known, n_ctx=counted, updated_at=now)


def refused(known: Calibration, context_tokens: int | None, now: float) -> Calibration:
    """The server said 400: remember the context it named, and that the estimate was too low."""
    return replace(
        known,
        ratio_mean=_bounded(known.ratio_mean * REFUSED_FACTOR),
        n_ctx=context_tokens or known.n_ctx,
        updated_at=now,
    )


def context(known: Calibration | None, told: int, now: float) -> int:
    """The context to plan with: what the client was told, or less if that was learned within the last day."""
    if known is None or not known.n_ctx or not 0 <= now - known.updated_at < BELIEVED_S:
        return told
    return min(told, known.n_ctx)


def _bounded(value: float) -> float:
    return min(max(value, LEAST), MOST)
