"""The air between the nodes, and each node's transmit queue: time on air, listening before talking, loss.

Half duplex is modelled (who transmits hears nothing); collisions are not, they are part of a link's loss.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from meshai.radio.airtime import CW_MAX, Modem, contention_window, time_on_air_ms
from meshai.radio.virtual.frame import Frame, Link
from meshai.radio.virtual.timeline import Timeline, Timer

TX_QUEUE = 16
"""MAX_TX_QUEUE (protocol.md §3.6)."""
QUEUE_FULL, TX_DISABLED = 32, 34
"""QueueStatus.res values that are no Routing.Error (protocol.md §3.6)."""
UDP_DELAY_S = 0.004
_HOUR_S, _WINDOW_S = 3600.0, 60.0


class Air:
    """Who hears whom. ``udp`` carries frames at once, as the recordings' mesh did, but keeps the radios' timing."""

    def __init__(self, timeline: Timeline, rng: random.Random, *, udp: bool = False) -> None:
        self.timeline = timeline
        self.rng = rng
        self.udp = udp
        self._radios: dict[int, Radio] = {}
        self._links: dict[tuple[int, int], Link] = {}

    def join(self, radio: Radio) -> None:
        """Put a radio into the air; it hears nobody until linked."""
        self._radios[radio.num] = radio

    def link(self, a: int, b: int, link: Link, *, both_ways: bool = True) -> None:
        """Let ``b`` hear ``a``, and the other way round unless told otherwise. Replaces an earlier link."""
        self._links[a, b] = link
        if both_ways:
            self._links[b, a] = link

    def unlink(self, a: int, b: int) -> None:
        """Out of each other's reach."""
        self._links.pop((a, b), None)
        self._links.pop((b, a), None)

    def listeners(self, num: int) -> list[tuple[Radio, Link]]:
        """The radios in reach of a node, in the order they joined."""
        return [
            (radio, self._links[num, other])
            for other, radio in self._radios.items()
            if (num, other) in self._links and radio.on
        ]

    def carry(self, sender: Radio, frame: Frame, duration_s: float) -> None:
        """Deliver a frame to everybody in reach when its last symbol has passed."""
        start = self.timeline.now()
        for radio, link in self.listeners(sender.num):
            radio.hold_until(start + duration_s)
            radio.log.received(start, duration_s)
            if self.rng.random() >= link.loss:
                self.timeline.after(duration_s + link.delay_s, _delivery(radio, frame, link, start))

    def carry_udp(self, sender: Radio, frame: Frame) -> None:
        """Deliver a frame without waiting for its time on air."""
        for radio, link in self.listeners(sender.num):
            if self.rng.random() >= link.loss:
                self.timeline.after(UDP_DELAY_S + link.delay_s, _delivery(radio, frame, link, None))


def _delivery(radio: Radio, frame: Frame, link: Link, start: float | None) -> Callable[[], None]:
    def deliver() -> None:
        radio.hear(frame, link, start)

    return deliver


@dataclass(slots=True)
class AirtimeLog:
    """Seconds of transmitting, kept for an hour, and of receiving, kept for a minute."""

    timeline: Timeline
    _tx: deque[tuple[float, float]] = field(default_factory=deque)
    _rx: deque[tuple[float, float]] = field(default_factory=deque)
    _tx_s: float = 0.0

    def sent(self, at: float, seconds: float) -> None:
        """A transmission of our own."""
        self._tx.append((at, seconds))
        self._tx_s += seconds

    def received(self, at: float, seconds: float) -> None:
        """Somebody else's transmission."""
        self._rx.append((at, seconds))

    def channel_utilization(self) -> float:
        """Percent of the last 60 s in use, ours included (protocol.md §4)."""
        since = self.timeline.now() - _WINDOW_S
        while self._rx and self._rx[0][0] < since:
            self._rx.popleft()
        busy = sum(seconds for _, seconds in self._rx)
        busy += sum(seconds for _, seconds in takewhile(lambda entry: entry[0] >= since, reversed(self._tx)))
        return min(100.0, 100 * busy / _WINDOW_S)

    def air_util_tx(self) -> float:
        """Percent of the last hour spent transmitting (protocol.md §4)."""
        self._forget()
        return 100 * self._tx_s / _HOUR_S

    def minutes_until_below(self, percent: float) -> int:
        """Whole minutes until the last hour's share has fallen to ``percent``, at least one."""
        self._forget()
        now, total = self.timeline.now(), self._tx_s
        free_at = now
        for at, seconds in self._tx:
            if 100 * total / _HOUR_S <= percent:
                break
            total -= seconds
            free_at = at + _HOUR_S
        return max(1, math.ceil((free_at - now) / 60))

    def _forget(self) -> None:
        since = self.timeline.now() - _HOUR_S
        while self._tx and self._tx[0][0] < since:
            self._tx_s -= self._tx.popleft()[1]


@dataclass(slots=True)
class _Waiting:
    frame: Frame
    priority: int
    not_before: float
    order: int


class Radio:
    """A node's transceiver with its transmit queue."""

    def __init__(self, num: int, air: Air, modem: Callable[[], Modem], receive: Callable[[Frame, Link], None]) -> None:
        self.num = num
        self.on = True
        self.jammed = False  # the channel never gets free: the queue fills up
        self.has_radio = True
        self.log = AirtimeLog(air.timeline)
        self.frames_sent = 0
        self._air = air
        self._modem = modem
        self._receive = receive
        self._queue: list[_Waiting] = []
        self._order = 0
        self._busy_until = 0.0
        self._sending_until = 0.0
        self._timer: Timer | None = None

    @property
    def free(self) -> int:
        """Free places in the transmit queue; a node without a radio has none (protocol.md §3.6)."""
        return TX_QUEUE - len(self._queue) if self.has_radio else 0

    def airtime_s(self, frame: Frame) -> float:
        """Time on air of a frame at this radio's settings."""
        return time_on_air_ms(frame.size, self._modem()) / 1000

    def enqueue(self, frame: Frame, priority: int, *, relayed_at_snr: float | None = None, router: bool = False) -> int:
        """Queue a frame; 0, or QUEUE_FULL when only more important frames wait."""
        if len(self._queue) >= TX_QUEUE and not self._evict(priority):
            return QUEUE_FULL
        now = self._air.timeline.now()
        delay = self._own_delay() if relayed_at_snr is None else self._relay_delay(relayed_at_snr, router=router)
        self._order += 1
        self._queue.append(_Waiting(frame, priority, now + delay, self._order))
        if self._air.udp:
            self._air.carry_udp(self, frame)
        self._arm()
        return 0

    def cancel(self, key: tuple[int, int]) -> bool:
        """Take a frame out of the queue again; whether it was there."""
        kept = [item for item in self._queue if item.frame.key != key]
        found = len(kept) < len(self._queue)
        self._queue = kept
        return found

    def waits(self, key: tuple[int, int]) -> bool:
        """Whether a frame is still to be transmitted."""
        return any(item.frame.key == key for item in self._queue)

    def silence(self) -> None:
        """Forget everything that waits: a reboot."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hold_until(self, at: float) -> None:
        """The channel is heard to be busy."""
        self._busy_until = max(self._busy_until, at)

    def hear(self, frame: Frame, link: Link, start: float | None) -> None:
        """A frame arrives; lost when this radio is off or was transmitting meanwhile."""
        if self.on and (start is None or self._sending_until <= start):
            self._receive(frame, link)

    def _evict(self, priority: int) -> bool:
        least = min(self._queue, key=lambda item: (item.priority, -item.order))
        if least.priority >= priority:
            return False
        self._queue.remove(least)
        return True

    def _own_delay(self) -> float:
        slots = self._air.rng.randrange(2 ** contention_window(self.log.channel_utilization()))
        return slots * self._modem().slot_ms / 1000

    def _relay_delay(self, snr: float, *, router: bool) -> float:
        """The worse it was heard, the sooner it is repeated; routers go first (firmware RadioInterface.cpp)."""
        window = 3 + round(5 * (min(max(snr, -20.0), 10.0) + 20) / 30)
        slot_s = self._modem().slot_ms / 1000
        if router:
            return self._air.rng.randrange(2 * window) * slot_s
        return (2 * CW_MAX + self._air.rng.randrange(2**window)) * slot_s

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._queue or self.jammed or not self.on:
            return
        now = self._air.timeline.now()
        at = max(self._sending_until, min(item.not_before for item in self._queue))
        if self._busy_until > now and not self._air.udp:
            at = max(at, self._busy_until + self._own_delay())
        self._timer = self._air.timeline.after(at - now, self._transmit)

    def unjam(self) -> None:
        """The channel is free again."""
        self.jammed = False
        self._arm()

    def _transmit(self) -> None:
        self._timer = None
        now = self._air.timeline.now()
        ready = [item for item in self._queue if item.not_before <= now]
        if not ready or self.jammed or not self.on or now < self._sending_until:
            self._arm()
            return
        if self._busy_until > now and not self._air.udp:
            self._arm()
            return
        item = max(ready, key=lambda waiting: (waiting.priority, -waiting.order))
        self._queue.remove(item)
        duration = self.airtime_s(item.frame)
        self._sending_until = now + duration
        self.log.sent(now, duration)
        self.frames_sent += 1
        if not self._air.udp:
            self._air.carry(self, item.frame, duration)
        self._arm()
