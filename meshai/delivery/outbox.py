"""From an answer to packets in the database, in the caller's transaction (DESIGN §3 Delivery)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from meshai.clock import Clock
from meshai.config.model import Reply
from meshai.delivery.parts import Cut, cut, size, whole_sentences
from meshai.delivery.plain import clean, to_plain
from meshai.storage import answers, delivery_counts, outbound
from meshai.storage.answers import AnswerRow, Kind
from meshai.storage.database import Queries, Transaction
from meshai.storage.outbound import Packet

COMMAND, ANSWER, HELD, TAPBACK = range(4)
"""Priorities: command reply > answer > held answer > tapback."""
PRIORITY: dict[Kind, int] = {"command": COMMAND, "answer": ANSWER, "more": ANSWER, "notice": ANSWER, "tapback": TAPBACK}

MAX_REPLY_BYTES_PKI, MAX_REPLY_BYTES_CHANNEL = 215, 227
"""Text that fits a packet together with a reply id (protocol.md §1)."""
LATER_PARTS_S = 900.0
"""Parts after the first have this long from the first one's hand-over (DESIGN §4.2 ttl_s)."""
TAPBACK_TTL_S = 30.0
"""A tapback that comes later than this says nothing."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an answer goes. ``channel_index`` None: a DM; the key is the one that asked."""

    node_id: str
    public_key: bytes | None = None
    channel_index: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be said. ``max_parts`` 0: the configured number."""

    to: Address
    text: str
    kind: Kind = "answer"
    conv_id: int | None = None
    inbound_id: int | None = None
    reply_id: int | None = None
    hops_used: int | None = None  # by the question; None: unknown
    asked_at: float | None = None
    max_parts: int = 0
    truncated: bool = False  # the model ran into its token limit
    message_id: int | None = None  # the assistant's row, when there is one

    @property
    def hop_limit(self) -> int | None:
        """Two more than the question used, as the firmware does for its own answers (protocol.md §4)."""
        return None if self.hops_used is None else self.hops_used + 2


@dataclass(frozen=True, slots=True)
class Committed:
    """What was stored. ``parts`` are the packets' texts; ``rest`` waits for ``!more``."""

    answer_id: int
    parts: tuple[str, ...]
    rest: str = ""


class AirtimeRoom(Protocol):
    """What the outbox and the writer ask of the governor."""

    def airtime_ms(self, text_bytes: int, *, is_dm: bool, has_reply: bool) -> int:
        """Time on air of one packet."""
        ...

    def parts_that_fit(self, parts: int, part_bytes: int, reserved_ms: int) -> int:
        """How many of these parts the budget still has room for; at least one."""
        ...

    def reserve(self, token: object, parts: int, part_bytes: int) -> None:
        """Keep room for parts that are still being written."""
        ...

    def release(self, token: object) -> None:
        """Give it back."""
        ...


def harmless_start(text: str) -> str:
    """A reply must never look like a command to another bot (DESIGN §4.3)."""
    return f"» {text}" if text.startswith(("!", "/")) else text


class Outbox:
    """Stores answers as packets and wakes the sender once they are committed."""

    def __init__(
        self,
        settings: Callable[[], Reply],
        clock: Clock,
        new_packet_id: Callable[[], int],
        *,
        governor: AirtimeRoom,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.governor = governor
        self._new_packet_id = new_packet_id
        self.wake = wake

    async def commit(self, tx: Transaction, answer: Answer) -> Committed:
        """Cut an answer and queue its packets. An answer of the model is made plain; other texts are only cleaned."""
        text = to_plain(answer.text) if answer.kind == "answer" else clean(answer.text).strip()
        if answer.truncated:
            text = whole_sentences(text)
        return await self.commit_plain(tx, answer, text)

    async def tapback(self, tx: Transaction, answer: Answer) -> Committed:
        """Queue one emoji on the question; nobody waits for its receipt."""
        return await self.commit_plain(tx, replace(answer, kind="tapback", max_parts=1), answer.text)

    async def more(
        self,
        tx: Transaction,
        address: Address,
        *,
        inbound_id: int | None = None,
        reply_id: int | None = None,
        hops_used: int | None = None,
        max_parts: int = 0,
    ) -> Committed | None:
        """The next parts of what the person's latest answer left over; None when nothing is stored."""
        last = await answers.latest(tx, address.node_id, address.public_key, texts_only=True)
        if last is None or not last.rest:
            return None
        await answers.take_rest(tx, last.id)
        following = Answer(
            address, last.rest, "more", last.conv_id, inbound_id, reply_id, hops_used, last.asked_at, max_parts,
            last.truncated, last.message_id,
        )  # fmt: skip
        return await self.commit_plain(tx, following, last.rest)

    async def truncated_answer(self, q: Queries, address: Address) -> AnswerRow | None:
        """The person's latest answer if the model was cut off in it and nothing of it waits: ``!more`` asks on."""
        last = await answers.latest(q, address.node_id, address.public_key, texts_only=True)
        return last if last is not None and last.truncated and not last.rest else None

    async def again(self, tx: Transaction, address: Address, part: int | None = None) -> Committed | None:
        """The stored parts of the latest answer once more under new ids, or one of them.

        None when there is no such answer or part. ``parts`` is empty when they are on their way already.
        """
        last = await answers.latest(tx, address.node_id, address.public_key)
        if last is None:
            return None
        newest = {p.part: p for p in await outbound.of_answer(tx, last.id) if p.reason != outbound.SUPERSEDED}
        wanted = [newest[number] for number in sorted(newest) if part in (None, number)]
        if not wanted:
            return None
        repeats = [packet for packet in wanted if not self._on_its_way(packet)]
        for packet in repeats:
            await self._repeat(tx, packet)
        tx.after_commit(self.wake)
        return Committed(last.id, tuple(packet.content for packet in repeats), last.rest)

    async def stop(self, tx: Transaction, address: Address) -> int:
        """Drop what is not sent to a person; returns the number of packets."""
        dropped = await outbound.settle_person(
            tx, address.node_id, address.public_key, channel_index=address.channel_index, reason="stopped",
            now=self.clock.now(),
        )  # fmt: skip
        tx.after_commit(self.wake)
        return dropped

    async def forget_rests(self, tx: Transaction, address: Address) -> None:
        """``!reset``: ``!more`` finds nothing of the earlier conversation."""
        await answers.drop_rests(tx, address.node_id, address.public_key)

    async def insert_answer(self, tx: Transaction, answer: Answer, *, text: str, rest: str, complete: bool) -> int:
        """The row of the answer itself."""
        return await answers.insert(
            tx, node_id=answer.to.node_id, public_key=answer.to.public_key, kind=answer.kind, now=self.clock.now(),
            text=text, rest=rest, truncated=answer.truncated, complete=complete, inbound_id=answer.inbound_id,
            conv_id=answer.conv_id, message_id=answer.message_id, asked_at=answer.asked_at,
        )  # fmt: skip

    async def queue_part(
        self,
        tx: Transaction,
        answer: Answer,
        answer_id: int,
        *,
        part: int,
        total: int,
        content: str,
        text_from: int,
        first_is_out: bool = False,
        after: Packet | None = None,
    ) -> None:
        """One packet of an answer; ``after``: an earlier part is held or has ended, so this one shares its fate."""
        now = self.clock.now()
        reply_id = await self._reply_id(tx, answer, content) if part == 1 else None
        ttl = TAPBACK_TTL_S if answer.kind == "tapback" else self.settings().ttl_s
        later = 0.0 if part == 1 else LATER_PARTS_S
        await outbound.insert(
            tx, answer_id=answer_id, node_id=answer.to.node_id, public_key=answer.to.public_key,
            channel_index=answer.to.channel_index, packet_id=self._new_packet_id(), part=part, total=total,
            content=content, text_from=text_from, priority=PRIORITY[answer.kind], now=now,
            expires_at=after.expires_at if after else now + later + (0.0 if first_is_out else ttl),
            state=after.state if after else "queued", reason=after.reason if after else "",
            settled_at=after.settled_at if after else None,
            reply_id=reply_id, hop_limit=answer.hop_limit,
            airtime_ms=self.airtime_ms(content, answer.to, reply_id is not None),
        )  # fmt: skip

    def airtime_ms(self, content: str, to: Address, has_reply: bool) -> int:
        """Time on air of one packet to this address."""
        return self.governor.airtime_ms(size(content), is_dm=to.channel_index is None, has_reply=has_reply)

    async def parts_allowed(self, q: Queries, answer: Answer) -> int:
        """The parts this answer may take: what was asked for, shortened to what the budget has room for."""
        asked = answer.max_parts or self.settings().max_parts
        if answer.to.channel_index is not None:
            return 1
        if answer.kind == "command":
            return asked
        return self.governor.parts_that_fit(asked, self.settings().max_bytes, await outbound.queued_airtime_ms(q))

    async def commit_plain(self, tx: Transaction, answer: Answer, text: str) -> Committed:
        """``commit`` for a text that is plain already."""
        pieces = await self._cut(tx, answer, text)
        if answer.inbound_id is not None and answer.kind != "tapback":
            await outbound.drop_tapbacks(tx, answer.inbound_id, now=self.clock.now())
        answer_id = await self.insert_answer(tx, answer, text=pieces.text, rest=pieces.rest, complete=True)
        total = len(pieces.parts)
        for number, (content, start) in enumerate(zip(pieces.parts, pieces.starts, strict=True), start=1):
            await self.queue_part(tx, answer, answer_id, part=number, total=total, content=content, text_from=start)
        tx.after_commit(self.wake)
        return Committed(answer_id, pieces.parts, pieces.rest)

    async def _cut(self, q: Queries, answer: Answer, text: str) -> Cut:
        if answer.kind == "tapback":
            return Cut((text,), "", text, (0,))
        max_parts = await self.parts_allowed(q, answer)
        return cut(
            harmless_start(text),
            max_bytes=self.settings().max_bytes,
            max_parts=max_parts,
            more_follows=answer.truncated,
        )

    async def _reply_id(self, q: Queries, answer: Answer, content: str) -> int | None:
        """Only where it fits, and not for nodes that never confirm packets with one (protocol.md §3.3)."""
        if answer.reply_id is None or answer.kind == "tapback":
            return answer.reply_id
        room = MAX_REPLY_BYTES_PKI if answer.to.channel_index is None else MAX_REPLY_BYTES_CHANNEL
        if size(content) > room or (await delivery_counts.history(q, answer.to.node_id)).refuses_replies:
            return None
        return answer.reply_id

    @staticmethod
    def _on_its_way(packet: Packet) -> bool:
        return packet.state == "queued" or (packet.state in ("sent", "relayed") and packet.settled_at is None)

    async def _repeat(self, tx: Transaction, packet: Packet) -> None:
        now = self.clock.now()
        if packet.state == "held":
            await outbound.set_state(tx, packet.id, "failed", reason=outbound.SUPERSEDED, settled_at=now)
        await outbound.copy(
            tx, packet, packet_id=self._new_packet_id(), reason="", now=now, attempts=0, priority=ANSWER,
            expires_at=now + self.settings().ttl_s + (LATER_PARTS_S if packet.part > 1 else 0.0),
        )  # fmt: skip
