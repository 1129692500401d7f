"""The sender: one loop that brings queued packets to the radio and follows what becomes of them.

Spacing is global, waiting for a receipt is per person, turns are fair between persons. Everything durable is in
``outbound``; what is kept here (who waits for what) is rebuilt from it after a restart or a reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from meshai.clock import Clock
from meshai.config.model import Reply
from meshai.delivery import timing
from meshai.delivery.fates import Fates, is_current
from meshai.delivery.governor import Governor
from meshai.delivery.naks import FATES
from meshai.delivery.outbox import LATER_PARTS_S
from meshai.delivery.overview import Overview
from meshai.delivery.problems import Problems
from meshai.delivery.turns import Person, Turns
from meshai.delivery.unstored import Unstored
from meshai.errors import LinkDownError, NotOnAirError, StorageError
from meshai.radio.link import (
    BROADCAST_NUM,
    Alert,
    Heard,
    LinkChange,
    LinkState,
    RadioLink,
    Receipt,
    SendRequest,
    node_id,
    node_num,
)
from meshai.storage import airtime, delivery_counts, outbound
from meshai.storage.database import Database, Transaction
from meshai.storage.outbound import Packet

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 15.0
"""The loop turns at least this often: the watchdog sees it move."""
BUSY_NODE_S = 5.0
"""A node whose queue is full is asked again after this."""
STORAGE_PAUSE_S = 5.0
"""The greatest users of airtime that ``status`` names."""
CLOCK_JUMP_S = 60.0
"""A wall clock that moves this much against the monotonic one has jumped."""


@dataclass(slots=True)
class Wait:
    """A packet in flight, on the monotonic clock."""

    person: Person
    timeout_at: float
    next_part_at: float | None = None  # None: until there is a receipt


class Sender:
    """The only user of ``RadioLink.send``. ``on_*`` are called on the loop and only enqueue."""

    def __init__(
        self,
        db: Database,
        radio: RadioLink,
        settings: Callable[[], Reply],
        clock: Clock,
        governor: Governor,
    ) -> None:
        self._db = db
        self._radio = radio
        self._settings = settings
        self._clock = clock
        self._governor = governor
        self._fates = Fates(settings, clock, radio.new_packet_id, governor)
        self._turns = Turns(governor)
        self._problems = Problems(clock)
        self._view = Overview(db)
        self._events: deque[Receipt | LinkChange | Heard | Alert] = deque()
        self._unstored = Unstored(radio, governor)
        self._waits: dict[int, Wait] = {}
        self._handed: tuple[Packet, int, float] | None = None
        self._last_text_at = float("-inf")
        self._wall_offset = clock.now() - clock.monotonic()
        self._progress = clock.monotonic()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what the last run left, and begin to send."""
        await self.prepare()
        self._task = asyncio.create_task(self._run(), name="sender")

    async def prepare(self) -> None:
        """Read what the last run left; ``start`` without the loop."""
        now = self._clock.now()
        self._governor.seed(await airtime.sent_since(self._db, now - 3600, now=now))
        last = await outbound.last_sent_at(self._db)
        if last is not None and 0 <= now - last < 60:
            self._last_text_at = self._clock.monotonic() - (now - last)
        await self._view.refresh(self._clock.now())
        if self._radio.state is LinkState.UP:
            self._events.append(LinkChange(LinkState.UP, "already up"))

    async def stop(self) -> None:
        """End the loop; what is queued stays queued."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def wake(self) -> None:
        """Something was committed: look at once."""
        self._wake.set()

    def on_receipt(self, receipt: Receipt) -> None:
        """A ROUTING answer came."""
        self._enqueue(receipt)

    def on_link(self, change: LinkChange) -> None:
        """The link changed its state."""
        self._enqueue(change)

    def on_heard(self, heard: Heard) -> None:
        """A node was heard; of interest only where something is held for it. The internet is no way back."""
        if not heard.via_mqtt and node_id(heard.from_num) in self._view.held_nodes:
            self._enqueue(heard)

    def on_alert(self, alert: Alert) -> None:
        """The node says something to its client."""
        self._enqueue(alert)

    def progress(self) -> float:
        """Monotonic time of the last completed turn of the loop, for the watchdog."""
        return self._progress

    def status(self) -> dict[str, object]:
        """Facts for ``status``; JSON types only."""
        return {
            **self._view.counts,
            "airtime": self._governor.status(self._view.queued_ms) | {"today": self._view.today},
            "problems": self._problems.listed(),
        }

    @property
    def queued_ms(self) -> int:
        """Time on air of what is queued, as of the last turn: the governor counts it as reserved."""
        return self._view.queued_ms

    async def step(self) -> float:
        """One turn: everything that can be done now. Returns the seconds until there is something to do."""
        if self._unstored and self._radio.state is LinkState.UP:
            if (gap := self._last_text_at + self._settings().spacing_s - self._clock.monotonic()) > 0:
                return gap
            if await self._unstored.send_next():
                self._last_text_at = self._clock.monotonic()
        await self._book_handed()
        await self._follow_clock()
        while self._events:
            await self._handle(self._events[0])
            self._events.popleft()
        await self._time_out()
        await self._end_overdue()
        delay = await self._send_next()
        await self._view.refresh(self._clock.now())
        self._progress = self._clock.monotonic()
        return 0.0 if self._events else min(delay, self._next_timeout(), LOOK_AGAIN_S)

    # The loop.

    def _enqueue(self, event: Receipt | LinkChange | Heard | Alert) -> None:
        self._events.append(event)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                delay = await self.step()
            except StorageError as error:
                log.error("cannot store what is sent, waiting: %s", error)  # noqa: TRY400 - the operator needs no trace
                self._progress = self._clock.monotonic()  # a restart would not mend the disk
                delay = STORAGE_PAUSE_S
            except Exception:  # a bug of ours must not end the sending for good; the watchdog sees if it stays
                log.exception("sending failed")
                if self._events:
                    self._events.popleft()
                delay = STORAGE_PAUSE_S
            if delay > 0:
                await self._pause(delay)

    async def _pause(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._wake.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _follow_clock(self) -> None:
        """A Pi's clock jumps when the network arrives: what waits must neither expire nor wait for years."""
        offset = self._clock.now() - self._clock.monotonic()
        jump = offset - self._wall_offset
        if abs(jump) < CLOCK_JUMP_S:
            return
        log.warning("the computer's clock jumped by %.0f s; waiting packets keep their time", jump)
        newest = self._view.newest_id
        await self._db.transaction(lambda tx: outbound.shift_times(tx, jump, up_to_id=newest))
        self._wall_offset = offset

    # Events.

    async def _handle(self, event: Receipt | LinkChange | Heard | Alert) -> None:
        match event:
            case Receipt():
                await self._receipt(event)
            case LinkChange():
                await self._link(event)
            case Heard():
                name = node_id(event.from_num)
                released = await self._db.transaction(lambda tx: self._fates.release(tx, name))
                if released:
                    log.info("%s was heard: %d held packets go out", name, released)
            case Alert():
                if (seconds := self._governor.heard_alert(event.text)) is not None:
                    log.warning("the node may not send for %.0f s: %s", seconds, event.text)

    async def _receipt(self, receipt: Receipt) -> None:
        packet = await outbound.by_packet_id(self._db, receipt.packet_id)
        if packet is None or packet.kind == "tapback":
            return  # stray receipts are normal (protocol.md §9.1)
        if receipt.error != "NONE":
            await self._nak(packet, receipt.error)
        elif packet.is_dm and not receipt.implicit and receipt.from_num == node_num(packet.node_id):
            await self._db.transaction(lambda tx: self._fates.delivered(tx, packet))
            self._waits.pop(packet.id, None)
        elif await self._db.transaction(lambda tx: self._fates.relayed(tx, packet)):
            self._was_relayed(packet)

    def _was_relayed(self, packet: Packet) -> None:
        if not packet.is_dm:
            self._waits.pop(packet.id, None)
        elif (wait := self._waits.get(packet.id)) is not None and wait.next_part_at is None:
            wait.next_part_at = self._clock.monotonic() + timing.next_part_s(packet.airtime_ms, _hops(packet))

    async def _nak(self, packet: Packet, reason: str) -> None:
        if await self._db.transaction(lambda tx: self._fates.nak(tx, packet, reason)):
            self._waits.pop(packet.id, None)
            self._problems.note(packet.node_id, reason)

    async def _link(self, change: LinkChange) -> None:
        self._waits.clear()
        if change.state is not LinkState.UP:
            return
        for packet in await outbound.in_flight(self._db):
            await self._db.transaction(lambda tx, packet=packet: self._fates.recover(tx, packet))  # type: ignore[misc]

    # Time.

    async def _time_out(self) -> None:
        now = self._clock.monotonic()
        for row_id in [row_id for row_id, wait in self._waits.items() if wait.timeout_at <= now]:
            packet = await outbound.get(self._db, row_id)
            if packet is not None and packet.settled_at is None and packet.state in ("sent", "relayed"):
                await self._db.transaction(lambda tx, packet=packet: self._no_receipt(tx, packet))  # type: ignore[misc]
            del self._waits[row_id]

    async def _no_receipt(self, tx: Transaction, packet: Packet) -> None:
        if packet.state == "relayed":
            await self._fates.settle_relayed(tx, packet)
        elif packet.reason == outbound.REPEAT or not packet.is_dm:
            await self._fates.unknown(tx, packet)  # a serial node swallows a repeat it remembers (DESIGN §3)
        else:
            await self._fates.lost(tx, packet, "no receipt")

    async def _end_overdue(self) -> None:
        for packet in await outbound.overdue(self._db, self._clock.now()):
            if await is_current(self._db, packet):
                await self._db.transaction(lambda tx, packet=packet: self._fates.overdue(tx, packet))  # type: ignore[misc]

    def _next_timeout(self) -> float:
        now = self._clock.monotonic()
        moments = [wait.timeout_at for wait in self._waits.values()]
        moments += [wait.next_part_at for wait in self._waits.values() if wait.next_part_at and wait.next_part_at > now]
        return max(0.0, min(moments) - now) if moments else LOOK_AGAIN_S

    # Sending.

    def send_unstored(self, request: SendRequest) -> None:
        """While the database takes nothing: send a text that no table knows of; whether it arrives stays unknown."""
        self._unstored.add(request)
        self._wake.set()

    async def _send_next(self) -> float:
        if self._radio.state is not LinkState.UP:
            return LOOK_AGAIN_S
        packets = await outbound.queued(self._db)
        if not packets:
            return LOOK_AGAIN_S
        now = self._clock.monotonic()
        waiting = {w.person for w in self._waits.values() if w.next_part_at is None or w.next_part_at > now}
        packet, delay = self._turns.choose(packets, waiting, now=self._clock.now())
        if packet is None:
            return delay
        if (gap := self._last_text_at + self._settings().spacing_s - now) > 0:
            return gap
        return await self._transmit(packet)

    async def _transmit(self, packet: Packet) -> float:
        """Hand one packet over, then book it: a crash in between sends the same id again, which arrives once."""
        request = self._request(packet)
        ms = self._governor.airtime_ms(
            len(packet.content.encode()), is_dm=packet.is_dm, has_reply=packet.reply_id is not None,
            is_tapback=request.is_tapback,
        )  # fmt: skip
        try:
            await self._radio.send(request)
        except LinkDownError:
            return LOOK_AGAIN_S
        except NotOnAirError as error:
            return await self._refused(packet, ms, error.reason)
        now = self._clock.monotonic()
        self._last_text_at = now
        self._governor.booked(ms)
        self._turns.served(packet.person)
        if request.want_ack:
            self._waits[packet.id] = Wait(packet.person, now + self._timeout_s(packet, ms))
        self._handed = (packet, ms, self._clock.now())
        await self._book_handed()
        return 0.0

    async def _book_handed(self) -> None:
        """Store that the last packet was handed over; tried again first thing while the database refuses."""
        if self._handed is not None:
            packet, ms, at = self._handed
            await self._db.transaction(lambda tx: self._book(tx, packet, ms, at))
            self._handed = None

    def _request(self, packet: Packet) -> SendRequest:
        node = self._governor.modem()
        is_tapback = packet.kind == "tapback"
        return SendRequest(
            packet_id=packet.packet_id,
            to_num=node_num(packet.node_id) if packet.is_dm else BROADCAST_NUM,
            text=packet.content,
            channel_index=packet.channel_index or 0,
            reply_id=packet.reply_id,
            is_tapback=is_tapback,
            public_key=packet.public_key if packet.is_dm else None,
            hop_limit=None if packet.hop_limit is None else min(packet.hop_limit, node.hop_limit),
            want_ack=not is_tapback,
        )

    async def _book(self, tx: Transaction, packet: Packet, ms: int, now: float) -> None:
        reason = packet.reason if packet.reason in (outbound.REPEAT, outbound.LATE) else ""
        is_tapback = packet.kind == "tapback"
        await outbound.mark_sent(tx, packet, now=now, reason=reason, airtime_ms=ms, settled=is_tapback)
        await airtime.add(tx, packet.node_id, packets=1, airtime_ms=ms, now=now)
        if not is_tapback and packet.reason != outbound.REPEAT:
            await delivery_counts.add(tx, packet.node_id, now=now, parts_sent=1)
        if packet.part == 1 and packet.attempts == 0:
            await outbound.extend_later_parts(tx, packet, expires_at=now + LATER_PARTS_S)

    async def _refused(self, packet: Packet, ms: int, reason: str) -> float:
        """The node did not take it: a Routing.Error like any NAK, or a full queue, which passes."""
        if reason not in FATES:
            log.warning("the node does not take packets now: %s", reason)
            not_before = self._clock.now() + BUSY_NODE_S
            await self._db.transaction(
                lambda tx: outbound.set_state(tx, packet.id, "queued", reason=packet.reason, not_before=not_before)
            )
            return BUSY_NODE_S
        self._governor.booked(ms)  # the NAK takes it back
        await self._db.transaction(lambda tx: self._book(tx, packet, ms, self._clock.now()))
        sent = await outbound.get(self._db, packet.id)
        if sent is not None:
            await self._nak(sent, reason)
        return 0.0

    def _timeout_s(self, packet: Packet, ms: int) -> float:
        configured = self._settings().ack_timeout_s
        if configured > 0:
            return configured
        return timing.receipt_timeout_s(self._governor.modem(), ms, _hops(packet), self._governor.channel_use())


def _hops(packet: Packet) -> int | None:
    return None if packet.hop_limit is None else max(0, packet.hop_limit - 2)
