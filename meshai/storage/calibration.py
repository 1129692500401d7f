"""What was learned about a model's tokens and its real context; docs/memory.md §2.4."""

from __future__ import annotations

from dataclasses import dataclass

from meshai.storage.database import Queries, Transaction


@dataclass(frozen=True, slots=True)
class Calibration:
    """A row of ``token_calibration``. ``ratio_mean`` is true tokens per estimated one; ``n_ctx`` 0: nothing learned."""

    model: str
    ratio_mean: float = 1.0
    ratio_var: float = 0.0
    n: int = 0
    n_ctx: int = 0
    updated_at: float = 0.0


async def every(q: Queries) -> list[Calibration]:
    """What is known of every model."""
    rows = await q.fetch_all(
        "SELECT model, ratio_mean, ratio_var, n, n_ctx, updated_at FROM token_calibration ORDER BY model"
    )
    return [Calibration(*tuple(row)) for row in rows]


async def save(tx: Transaction, value: Calibration) -> None:
    """Insert or replace the row of a model."""
    await tx.execute(
        "INSERT INTO token_calibration (model, ratio_mean, ratio_var, n, n_ctx, updated_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (model) DO UPDATE SET ratio_mean = excluded.ratio_mean, ratio_var = excluded.ratio_var,"
        " n = excluded.n, n_ctx = excluded.n_ctx, updated_at = excluded.updated_at",
        (value.model, value.ratio_mean, value.ratio_var, value.n, value.n_ctx, value.updated_at),
    )
