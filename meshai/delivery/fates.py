"""What becomes of a packet: every change of state, each inside a transaction of its caller (DESIGN §3 States)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from meshai.clock import Clock
from meshai.config.model import Reply
from meshai.delivery import late
from meshai.delivery.governor import Governor
from meshai.delivery.naks import Fate, fate_of, is_key_trouble
from meshai.delivery.outbox import HELD, LATER_PARTS_S
from meshai.storage import airtime, answers, delivery_counts, messages, nodes, outbound
from meshai.storage.answers import AnswerRow
from meshai.storage.database import Queries, Transaction
from meshai.storage.outbound import Packet

log = logging.getLogger(__name__)

TRIES = 2
"""A part that is known lost is sent once more (DESIGN §3 After a crash)."""
LATE_TRIES = 3
"""A held answer is tried at no more sightings than this."""
SAME_ID_S = 600.0
"""The mesh forgets an id after ten minutes (firmware PacketHistory): later a repeat would arrive twice."""
SAME_ID_HANDOVERS = 4
"""A link that breaks again before a receipt repeats the id again, but a flapping one must not fill the air."""
KEY_EXCHANGE_S = 30.0
"""A node that lacked our key has it after this (protocol.md §3.2 PKI_UNKNOWN_PUBKEY)."""
GRACE_S = 2.0
"""After a reconnect the node first hands over the receipts it kept (protocol.md §9.7)."""
FIRMWARE_TRIES = 3
"""Transmissions that a MAX_RETRANSMIT stands for (protocol.md §3.7)."""


class Fates:
    """Moves packets through their states; knows nothing of the radio."""

    def __init__(
        self, settings: Callable[[], Reply], clock: Clock, new_packet_id: Callable[[], int], governor: Governor
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._new_id = new_packet_id
        self._governor = governor

    async def delivered(self, tx: Transaction, packet: Packet) -> None:
        """The destination itself confirmed."""
        if packet.state == "delivered":
            return
        now = self._clock.now()
        await self._uncount(tx, packet)
        await outbound.set_state(tx, packet.id, "delivered", settled_at=now)
        await delivery_counts.add(
            tx, packet.node_id, now=now, parts_delivered=1, reply_acked=int(packet.reply_id is not None)
        )
        await outbound.drop_copies(tx, packet, now=now)
        if packet.state in ("held", "failed", "expired"):
            await self._message_status(tx, packet.answer_id, "final")
            await outbound.unhold(tx, packet.answer_id, expires_at=now + LATER_PARTS_S)
        await self._after(tx, packet)

    async def relayed(self, tx: Transaction, packet: Packet) -> bool:
        """Somebody repeated it, nothing more; on a channel that is all there will be. True if that is news."""
        if not (packet.state == "sent" or (packet.state == "queued" and packet.reason == outbound.REPEAT)):
            return False
        if packet.is_dm and packet.settled_at is None:
            await outbound.set_state(tx, packet.id, "relayed")
        else:
            await self.settle_relayed(tx, packet)
        return True

    async def settle_relayed(self, tx: Transaction, packet: Packet, *, reason: str = "") -> None:
        """No confirmation came after the relaying; it may still. UNKNOWN: it may have come and got lost here."""
        now = self._clock.now()
        await outbound.set_state(tx, packet.id, "relayed", reason=reason, settled_at=now)
        await delivery_counts.add(
            tx, packet.node_id, now=now, parts_relayed=1, reply_unacked=int(packet.reply_id is not None)
        )
        await self._after(tx, packet)

    async def unknown(self, tx: Transaction, packet: Packet) -> None:
        """Sent, perhaps twice under one id, and silence: not known lost, so it is left alone."""
        await outbound.set_state(tx, packet.id, "sent", reason=outbound.UNKNOWN, settled_at=self._clock.now())
        await self._after(tx, packet)

    async def lost(self, tx: Transaction, packet: Packet, reason: str) -> None:
        """Known lost: once more under a new id on a quiet channel, after that it is held."""
        if reason == "MAX_RETRANSMIT":
            self._governor.booked((FIRMWARE_TRIES - 1) * packet.airtime_ms)
        await self._count_failed(tx, packet)
        if packet.attempts < TRIES:
            await self._retry(tx, packet, reason)
        else:
            await self.hold(tx, packet, reason)

    async def nak(self, tx: Transaction, packet: Packet, reason: str) -> bool:
        """A refusal. False if it says nothing new: the first NAK is final unless an ACK follows (protocol.md §3.3)."""
        repeat = packet.state == "queued" and packet.reason == outbound.REPEAT
        if not repeat and (packet.state not in ("sent", "relayed") or packet.settled_at is not None):
            return False
        fate = fate_of(reason)
        if fate is Fate.IGNORE or (fate is Fate.RETRY and packet.state == "relayed"):
            return False
        now = self._clock.now()
        if fate is Fate.RETRY:
            await self.lost(tx, packet, reason)
        elif fate is Fate.RETRY_SOON and packet.attempts < TRIES:
            await self._count_failed(tx, packet)
            await self._retry(tx, packet, reason, not_before=now + KEY_EXCHANGE_S, tag=outbound.WAIT)
        elif fate is Fate.RETRY_PACED:
            await self._not_transmitted(tx, packet, reason, not_before=now + self._settings().spacing_s)
        elif fate is Fate.WAIT:
            await self._not_transmitted(tx, packet, reason, not_before=now + self._governor.refused_for_duty())
        elif fate is Fate.SPLIT:
            await self._split(tx, packet, reason)
        elif fate in (Fate.HOLD, Fate.RETRY_SOON):
            await self._count_failed(tx, packet)
            await self.hold(tx, packet, reason)
        else:
            await self._count_failed(tx, packet)
            await self._end(tx, packet, "failed", reason)
            if is_key_trouble(reason) and packet.is_dm and packet.public_key is not None:
                await nodes.raise_key_alarm(tx, packet.node_id, now=now)
        return True

    async def overdue(self, tx: Transaction, packet: Packet) -> None:
        """Its time is over: an answer that did not go out is held, not sent blind (DESIGN §3 Times)."""
        now = self._clock.now()
        if packet.state == "held":
            await self._end(tx, packet, "expired", packet.reason or "not heard")
        elif packet.reason == outbound.REPEAT:
            await self.unknown(tx, packet)
        elif packet.reason == outbound.RETRY_RELAYED:
            await outbound.set_state(tx, packet.id, "expired", reason="channel busy", settled_at=now)
        elif packet.reason == outbound.LATE:
            await self._end(tx, packet, "expired", "not sent in time")
        else:
            await self.hold(tx, packet, "not sent in time", otherwise="expired")

    async def hold(self, tx: Transaction, packet: Packet, reason: str, *, otherwise: str = "failed") -> None:
        """Keep an answer's undelivered parts until the node is heard; what need not be kept ends."""
        hold_s = self._settings().hold_s
        now = self._clock.now()
        deadline = packet.expires_at if packet.reason == outbound.LATE else now + hold_s
        worth = packet.kind in ("answer", "more") and packet.is_dm and hold_s > 0
        if not worth or deadline <= now or packet.attempts >= TRIES + LATE_TRIES:
            await self._end(tx, packet, "expired" if otherwise == "expired" else "failed", reason)
            return
        await outbound.set_state(tx, packet.id, "held", reason=reason, expires_at=deadline)
        await outbound.set_later_parts(tx, packet, "held", reason=reason, now=now, expires_at=deadline)

    async def release(self, tx: Transaction, node_id: str) -> int:
        """The node was heard: its held answers go out now, cut again with the time of the question."""
        held = await outbound.held_of_node(tx, node_id)
        for answer_id in dict.fromkeys(packet.answer_id for packet in held):
            parts = [packet for packet in held if packet.answer_id == answer_id]
            prefix = late.prefix_of(await answers.get(tx, answer_id))
            await late.cut_again(
                tx, parts, prefix=prefix, max_bytes=self._settings().max_bytes, reason=outbound.LATE, priority=HELD,
                expires_at=parts[0].expires_at, attempts=max(1, *(p.attempts for p in parts), TRIES - 1),
                new_packet_id=self._new_id, now=self._clock.now(), governor=self._governor,
            )  # fmt: skip
        return len(held)

    async def recover(self, tx: Transaction, packet: Packet) -> None:
        """The connection it was sent on is gone: once more under the same id, if it is young enough."""
        now = self._clock.now()
        if packet.state == "relayed":
            # The confirmation may have died with the connection or the process: not known lost, not sent again.
            await self.settle_relayed(tx, packet, reason=outbound.UNKNOWN)
        elif packet.attempts >= SAME_ID_HANDOVERS or not 0 <= now - (packet.sent_at or 0.0) < SAME_ID_S:
            await self.unknown(tx, packet)
        else:
            await outbound.set_state(
                tx,
                packet.id,
                "queued",
                reason=outbound.REPEAT,
                expires_at=now + LATER_PARTS_S,
                not_before=now + GRACE_S,
            )

    async def _retry(
        self,
        tx: Transaction,
        packet: Packet,
        reason: str,
        *,
        not_before: float | None = None,
        tag: str = outbound.RETRY,
    ) -> None:
        now = self._clock.now()
        await outbound.set_state(tx, packet.id, "failed", reason=reason, settled_at=now)
        threaded = (await delivery_counts.history(tx, packet.node_id)).reply_acked > 0
        await outbound.copy(
            tx, packet, packet_id=self._new_id(), reason=tag, now=now, expires_at=now + LATER_PARTS_S,
            not_before=not_before, reply_id=packet.reply_id if threaded else None,
        )  # fmt: skip

    async def _not_transmitted(self, tx: Transaction, packet: Packet, reason: str, *, not_before: float) -> None:
        """The node dropped it before the radio: a new id (it remembers the old one), the try does not count."""
        now = self._clock.now()
        await self._take_back(tx, packet)
        await outbound.set_state(tx, packet.id, "failed", reason=reason, settled_at=now)
        await outbound.copy(
            tx, packet, packet_id=self._new_id(), reason=outbound.WAIT, now=now, not_before=not_before,
            expires_at=max(not_before, now) + LATER_PARTS_S, attempts=max(0, packet.attempts - 1),
            reply_id=packet.reply_id,
        )  # fmt: skip

    async def _split(self, tx: Transaction, packet: Packet, reason: str) -> None:
        """TOO_LARGE: this part and those after it are cut smaller."""
        now = self._clock.now()
        await self._take_back(tx, packet)
        parts = [
            p for p in await outbound.of_answer(tx, packet.answer_id) if p.id == packet.id or self._is_later(p, packet)
        ]
        smaller = late.smaller_than(packet.content)
        if smaller is None:
            await self._end(tx, packet, "failed", reason)
            return
        await late.cut_again(
            tx, parts, prefix="", max_bytes=smaller, reason="", priority=packet.priority,
            expires_at=now + LATER_PARTS_S, attempts=max(0, packet.attempts - 1), new_packet_id=self._new_id,
            now=now, governor=self._governor,
        )  # fmt: skip

    async def _end(self, tx: Transaction, packet: Packet, state: outbound.State, reason: str) -> None:
        """This part and all after it go no further; ``!again`` still finds them."""
        now = self._clock.now()
        await outbound.set_state(tx, packet.id, state, reason=reason, settled_at=now)
        await outbound.set_later_parts(tx, packet, state, reason=reason, now=now)
        others = await outbound.of_answer(tx, packet.answer_id)
        if not any(other.state in ("delivered", "relayed", "sent") for other in others):
            await self._message_status(tx, packet.answer_id, "undelivered")
        await self._after(tx, packet)

    async def _after(self, tx: Transaction, packet: Packet) -> None:
        """Once the last part is settled, parts that were only relayed go once more to a node that can confirm."""
        if not packet.is_dm or packet.kind == "tapback":
            return
        answer = await answers.get(tx, packet.answer_id)
        if answer is None or not answer.complete:
            return
        parts = [p for p in await outbound.of_answer(tx, packet.answer_id) if p.reason != outbound.SUPERSEDED]
        if any(p.state in ("queued", "held") or (p.sent_at is not None and p.settled_at is None) for p in parts):
            return
        newest = {p.part: p for p in parts}
        done = {p.part for p in parts if p.state == "delivered"}
        again = [
            part
            for part in newest.values()
            if part.state == "relayed" and part.reason != outbound.UNKNOWN and part.part not in done
            if part.attempts < TRIES and (await delivery_counts.history(tx, packet.node_id)).ever_acked
        ]
        now = self._clock.now()
        if not again:
            tx.after_commit(lambda: self._log(answer, newest.values(), len(done), now))
        for part in again:
            await outbound.copy(
                tx, part, packet_id=self._new_id(), reason=outbound.RETRY_RELAYED, now=now, priority=HELD,
                expires_at=now + LATER_PARTS_S,
            )  # fmt: skip

    @staticmethod
    def _log(answer: AnswerRow, parts: Collection[Packet], delivered: int, now: float) -> None:
        relayed = sum(part.state == "relayed" for part in parts)
        log.info(
            "%s to %s: %d part(s), %d delivered, %d relayed, %d not; %.0f s after it was written",
            answer.kind,
            answer.node_id,
            len(parts),
            delivered,
            relayed,
            len(parts) - delivered - relayed,
            max(0.0, now - answer.created_at),
        )

    async def _take_back(self, tx: Transaction, packet: Packet) -> None:
        """Booked as sent, but the node did not transmit it."""
        now = self._clock.now()
        self._governor.booked(-packet.airtime_ms)
        await airtime.add(tx, packet.node_id, packets=-1, airtime_ms=-packet.airtime_ms, now=now)
        await delivery_counts.add(tx, packet.node_id, now=now, parts_sent=-1)

    async def _count_failed(self, tx: Transaction, packet: Packet) -> None:
        await delivery_counts.add(
            tx, packet.node_id, now=self._clock.now(), parts_failed=1, reply_unacked=int(packet.reply_id is not None)
        )

    async def _uncount(self, tx: Transaction, packet: Packet) -> None:
        """A late ACK changes what was counted before."""
        counted_failed = packet.state in ("failed", "held", "expired") and packet.sent_at is not None
        counted_relayed = packet.state == "relayed" and packet.settled_at is not None
        if not (counted_failed or counted_relayed):
            return
        await delivery_counts.add(
            tx, packet.node_id, now=self._clock.now(), parts_failed=-int(counted_failed),
            parts_relayed=-int(counted_relayed), reply_unacked=-int(packet.reply_id is not None),
        )  # fmt: skip

    @staticmethod
    async def _message_status(tx: Transaction, answer_id: int, status: messages.Status) -> None:
        answer = await answers.get(tx, answer_id)
        if answer is not None and answer.message_id is not None and answer.kind in ("answer", "more"):
            await messages.set_status(tx, answer.message_id, status)

    @staticmethod
    def _is_later(other: Packet, packet: Packet) -> bool:
        return other.part > packet.part and other.state in ("queued", "held")


async def is_current(q: Queries, packet: Packet) -> bool:
    """The packet is still as it was read; a list may be old by the time its turn comes."""
    now = await outbound.get(q, packet.id)
    return now is not None and (now.state, now.reason, now.packet_id) == (packet.state, packet.reason, packet.packet_id)
