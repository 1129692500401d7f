"""Facts into the database: by pattern soon after they were said, by the summariser when they leave the window."""

from __future__ import annotations

from collections.abc import Sequence

from meshai.memory.facts import stated, touched
from meshai.storage import conversations, facts, messages
from meshai.storage.conversations import Conversation
from meshai.storage.database import Transaction
from meshai.storage.facts import NewFact
from meshai.storage.messages import StoredMessage

ROWS_AT_ONCE = 400


async def harvest(tx: Transaction, conv_id: int, *, now: float, upto_seq: int | None = None) -> int:
    """Take in what the user's messages not looked at yet state; returns the number of new facts."""
    conv = await conversations.load(tx, conv_id)
    start = max(conv.facts_upto_seq, conv.epoch_start_seq)
    end = conv.next_seq - 1 if upto_seq is None else min(upto_seq, conv.next_seq - 1)
    if start > end:
        return 0
    rows = await messages.between(tx, conv_id, start, end, limit=ROWS_AT_ONCE)
    count = 0
    for row in rows:
        for fact in stated(row, subject=subject_of(conv, row)):
            count += await facts.add(tx, conv_id, conv.epoch, fact, now=now) is not None
    seen = rows[-1].seq if len(rows) == ROWS_AT_ONCE else end
    await tx.execute("UPDATE conversations SET facts_upto_seq = ? WHERE id = ?", (seen + 1, conv_id))
    return count


async def evict(
    tx: Transaction, conv: Conversation, rows: Sequence[StoredMessage], found: Sequence[NewFact], *, now: float
) -> None:
    """What a summary's messages state, in the transaction that takes them out of the window (S2-24)."""
    last = max((row.seq for row in rows), default=-1)
    while True:
        before = (await conversations.load(tx, conv.id)).facts_upto_seq
        if before > last or not await _advance(tx, conv.id, last, now):
            break
    known = await facts.current(tx, conv.id)
    for fact in found:
        await facts.add(tx, conv.id, conv.epoch, fact, now=now)
    said = [row.content for row in rows if row.role == "user"]
    await facts.used(tx, touched(known, said), now=now)


def subject_of(conv: Conversation, row: StoredMessage) -> str:
    """Whom a fact is about: in a channel many people speak."""
    return row.sender if conv.kind == "channel" else ""


async def _advance(tx: Transaction, conv_id: int, last: int, now: float) -> bool:
    before = (await conversations.load(tx, conv_id)).facts_upto_seq
    await harvest(tx, conv_id, now=now, upto_seq=last)
    return (await conversations.load(tx, conv_id)).facts_upto_seq > before
