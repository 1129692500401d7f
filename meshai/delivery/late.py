"""Cutting what is left of an answer again: late, with the time of its question; or smaller, after TOO_LARGE."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from meshai.delivery.governor import Governor
from meshai.delivery.outbox import MAX_REPLY_BYTES_PKI
from meshai.delivery.parts import cut, size
from meshai.storage import answers, outbound
from meshai.storage.answers import AnswerRow
from meshai.storage.database import Transaction
from meshai.storage.outbound import Packet

MAX_PARTS = 9
SMALLEST_BYTES = 50


def prefix_of(answer: AnswerRow | None) -> str:
    """What a late answer begins with: ``(re your 14:05 question)``, local time."""
    if answer is None or answer.asked_at is None:
        return ""
    return f"(re your {time.strftime('%H:%M', time.localtime(answer.asked_at))} question) "


def smaller_than(content: str) -> int | None:
    """The next size to try after TOO_LARGE; None when it cannot be the size."""
    now = size(content)
    return max(SMALLEST_BYTES, int(now * 0.8)) if now > SMALLEST_BYTES else None


async def cut_again(
    tx: Transaction,
    parts: Sequence[Packet],
    *,
    prefix: str,
    max_bytes: int,
    reason: str,
    priority: int,
    expires_at: float,
    attempts: int,
    new_packet_id: Callable[[], int],
    now: float,
    governor: Governor,
) -> None:
    """Replace an answer's remaining parts, in order, by newly cut ones under new ids; nothing of the text is lost."""
    first = parts[0]
    answer = await answers.get(tx, first.answer_id)
    if answer is None:
        return
    pieces = cut(
        answer.text[first.text_from :],
        max_bytes=max_bytes,
        max_parts=MAX_PARTS - first.part + 1,
        first_part=first.part,
        prefix=prefix,
        more_follows=answer.complete and bool(answer.rest or answer.truncated),
        total_known=answer.complete,
    )
    for packet in parts:
        await outbound.set_state(tx, packet.id, "failed", reason=outbound.SUPERSEDED, settled_at=now)
    if pieces.rest:
        await answers.grow(
            tx, answer.id, text=answer.text[: first.text_from] + pieces.text,
            rest=f"{pieces.rest} {answer.rest}".strip(), truncated=answer.truncated, complete=answer.complete,
        )  # fmt: skip
    total = first.part - 1 + len(pieces.parts) if answer.complete else 0
    for index, (content, start) in enumerate(zip(pieces.parts, pieces.starts, strict=True)):
        reply_id = first.reply_id if index == 0 and size(content) <= MAX_REPLY_BYTES_PKI else None
        await outbound.insert(
            tx, answer_id=answer.id, node_id=first.node_id, public_key=first.public_key,
            channel_index=first.channel_index, packet_id=new_packet_id(), part=first.part + index, total=total,
            content=content, text_from=first.text_from + start, priority=priority, now=now, expires_at=expires_at,
            reply_id=reply_id, hop_limit=first.hop_limit, reason=reason, attempts=attempts,
            airtime_ms=governor.airtime_ms(size(content), is_dm=first.is_dm, has_reply=reply_id is not None),
        )  # fmt: skip
