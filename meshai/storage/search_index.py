"""The full-text indexes: derived from the tables, checked and made anew when they are broken (docs/memory.md §2.7)."""

from __future__ import annotations

import logging

from meshai.errors import StorageError
from meshai.storage.database import Queries, Transaction
from meshai.storage.migrations import create_statement

log = logging.getLogger(__name__)

INDEXES = {"messages_fts": "messages_fts_source", "facts_fts": "facts_fts_source"}
"""Index and the view it is made from."""


async def rebuild(tx: Transaction, index: str) -> int:
    """Make an index anew from its table; returns the number of rows. Also when its table is gone."""
    if index not in INDEXES:
        raise ValueError(f"no index {index!r}")
    try:
        await tx.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
    except StorageError:
        await tx.execute(f"DROP TABLE IF EXISTS {index}")
        await tx.execute(create_statement(index))
        await tx.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
    return int(await tx.fetch_value(f"SELECT count(*) FROM {INDEXES[index]}"))


async def optimize(tx: Transaction) -> None:
    """Merge an index's segments: what was deleted is gone from the file only then."""
    for index in INDEXES:
        await tx.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")


async def is_sound(tx: Transaction, index: str) -> bool:
    """Does the index agree with its table, row by row?"""
    try:
        await tx.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
    except StorageError:
        return False
    return True


async def counts(q: Queries, index: str) -> tuple[int, int]:
    """Rows in the index and rows it should have (I12); (-1, n) when it cannot be read."""
    rows = int(await q.fetch_value(f"SELECT count(*) FROM {INDEXES[index]}"))
    try:
        return int(await q.fetch_value(f"SELECT count(*) FROM {index}_docsize")), rows
    except StorageError:
        return -1, rows


async def repair(tx: Transaction) -> list[str]:
    """Rebuild the indexes that are broken; returns their names."""
    broken = [index for index in INDEXES if not await is_sound(tx, index)]
    for index in broken:
        rows = await rebuild(tx, index)
        log.warning("the search index %s was broken and has been rebuilt from %d rows", index, rows)
    return broken
