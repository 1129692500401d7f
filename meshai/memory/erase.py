"""``!forget all``: what a person said and was told goes from the tables, the indexes, the log and the copies."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from meshai.storage import conversations, search_index
from meshai.storage.database import Database, Transaction
from meshai.storage.recover import automatic_copies

log = logging.getLogger(__name__)

PENDING = "erasure_pending"
DUPLICATES_S = 3600.0
"""A question's node and packet id stay this long without its text, or a retransmission would be answered anew."""


async def erase(tx: Transaction, conv_id: int, *, now: float) -> int:
    """Delete everything of a conversation; its row stays with the next epoch. Returns the number of messages.

    The file is clean only after ``finish``; that it is due is written in the same transaction, so that a crash in
    between is made up for at the next start.
    """
    count = int(await tx.fetch_value("SELECT count(*) FROM messages WHERE conv_id = ?", (conv_id,)))
    for table in ("answers", "llm_calls", "facts", "summaries", "messages"):
        await tx.execute(f"DELETE FROM {table} WHERE conv_id = ?", (conv_id,))
    await tx.execute("DELETE FROM inbound WHERE conv_id = ? AND received_at < ?", (conv_id, now - DUPLICATES_S))
    await tx.execute("UPDATE inbound SET content = '', reason = 'erased' WHERE conv_id = ?", (conv_id,))
    await _erase_unremembered(tx, conv_id)
    await conversations.new_epoch(tx, conv_id)
    await tx.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (PENDING, str(now)))
    return count


async def _erase_unremembered(tx: Transaction, conv_id: int) -> None:
    """What this person's node sent without authentication belongs to no conversation; its texts go, too."""
    node_id = await tx.fetch_value("SELECT node_id FROM conversations WHERE id = ?", (conv_id,))
    if node_id is not None:
        await tx.execute("DELETE FROM answers WHERE node_id = ? AND conv_id IS NULL", (node_id,))
        await tx.execute("UPDATE inbound SET content = '' WHERE node_id = ? AND conv_id IS NULL", (node_id,))


async def is_pending(db: Database) -> bool:
    """Is the file still to be cleaned?"""
    return await db.fetch_value("SELECT 1 FROM meta WHERE key = ?", (PENDING,)) is not None


async def finish(db: Database) -> bool:
    """Clean indexes, log and copies; False while another process keeps the log from being truncated."""
    await db.transaction(search_index.optimize)
    if not await db.checkpoint():
        return False
    await asyncio.to_thread(_remove_copies, db.path)
    await db.transaction(lambda tx: tx.execute("DELETE FROM meta WHERE key = ?", (PENDING,)))
    return await db.checkpoint()


async def drop_blank_questions(tx: Transaction, *, now: float) -> int:
    """Remove what only served to recognise retransmissions."""
    return await tx.execute("DELETE FROM inbound WHERE reason = 'erased' AND received_at < ?", (now - DUPLICATES_S,))


async def expire(tx: Transaction, *, before: float) -> int:
    """``memory.retention_days``: delete archived messages older than a time, but those active facts are from."""
    return await tx.execute(
        "DELETE FROM messages WHERE created_at < ? AND seq <"
        " (SELECT anchor_seq FROM conversations c WHERE c.id = messages.conv_id)"
        " AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.source_msg_id = messages.id AND f.invalid_at IS NULL)",
        (before,),
    )


def _remove_copies(path: Path) -> None:
    while copies := automatic_copies(path):  # again: one that was being written gets another name when it is whole
        for copy in copies:
            copy.unlink(missing_ok=True)
            log.info("removed %s: it held what was to be erased", copy)
