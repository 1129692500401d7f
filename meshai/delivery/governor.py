"""The airtime governor: the only way to the radio (DESIGN §3 Airtime)."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from meshai.clock import Clock
from meshai.config.model import Airtime
from meshai.delivery import timing
from meshai.radio.link import NodeInfo, Telemetry
from meshai.storage.outbound import RETRY, RETRY_RELAYED, Packet

HOUR_S = 3600.0
DUTY_CYCLE_PERCENT = {
    "EU_433": 10.0, "EU_868": 10.0, "EU_866": 2.5, "UA_433": 10.0, "UA_868": 1.0,
}  # fmt: skip
"""Regions with a limit (firmware RadioInterface.cpp, protocol.md §4); everywhere else 100."""
NEAR_HOPS, FAR_HOPS = 2, 4
SNR_FLOOR_DB = {7: -7.5, 8: -10.0, 9: -12.5, 10: -15.0, 11: -17.5, 12: -20.0}
"""What a LoRa receiver still decodes, by spreading factor (Semtech SX1262 data sheet)."""
SNR_MARGIN_DB = 3.0
RESERVED_FOR_S = 300.0
"""No answer is written for longer (DESIGN §3: 180 s in all): a forgotten reservation ends by itself."""
UNKNOWN_WAIT_S = 60.0
"""A node that refuses for its duty cycle and does not say how long is asked again after this."""

_SEND_AGAIN = re.compile(r"send again in (\d+)\s*(min|sec|hour)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an answer may use. ``parts`` 0: the budget is spent, ask again in ``again_in_s``."""

    parts: int
    reason: Literal["", "far", "weak", "busy", "half", "budget", "duty cycle"] = ""
    again_in_s: float = 0.0


class RollingHour:
    """Own time on air in the last 60 minutes of a clock that never jumps."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def add(self, at: float, ms: float) -> None:
        """Book time on air; a negative amount takes one back."""
        self._entries.append((at, ms))
        self._total += ms

    def used_ms(self, now: float) -> float:
        """The sum over the last hour."""
        while self._entries and self._entries[0][0] <= now - HOUR_S:
            self._total -= self._entries.popleft()[1]
        return max(0.0, self._total) if self._entries else 0.0

    def free_in_s(self, now: float, need_ms: float, limit_ms: float) -> float:
        """How long until ``need_ms`` fits under ``limit_ms``; the whole hour if it never does."""
        over = self.used_ms(now) + need_ms - limit_ms
        if over <= 0:
            return 0.0
        for at, ms in self._entries:
            over -= ms
            if over <= 0:
                return max(0.0, at + HOUR_S - now)
        return HOUR_S


class Governor:
    """Says what may be sent now and how long an answer may be."""

    def __init__(
        self,
        settings: Callable[[], Airtime],
        clock: Clock,
        *,
        node: Callable[[], NodeInfo | None],
        telemetry: Callable[[], Telemetry],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._node = node
        self._telemetry = telemetry
        self._hour = RollingHour()
        self._reserved: dict[object, tuple[float, float]] = {}  # until when, milliseconds
        self._silent_until = -math.inf

    # What is on the air.

    def modem(self) -> NodeInfo:
        """The own node's settings; the firmware's defaults before the first handshake."""
        return self._node() or NodeInfo(num=0)

    def airtime_ms(self, text_bytes: int, *, is_dm: bool, has_reply: bool, is_tapback: bool = False) -> int:
        """Time on air of one transmission of a text."""
        return timing.text_airtime_ms(self.modem(), text_bytes, pki=is_dm, has_reply=has_reply, is_tapback=is_tapback)

    def channel_use(self) -> float:
        """Channel utilisation in percent; unknown counts as 0 (DESIGN §3 Airtime)."""
        return self._telemetry().channel_utilization_percent or 0.0

    def seed(self, sent: list[tuple[float, int]]) -> None:
        """After a restart: what was sent in the hour before, as wall times and milliseconds."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        for at, ms in sent:
            self._hour.add(monotonic - min(max(wall - at, 0.0), HOUR_S), ms)

    def booked(self, ms: float) -> None:
        """A packet was handed over, or its transmission was taken back (negative)."""
        self._hour.add(self._clock.monotonic(), ms)

    # Before an answer is written.

    def allowance(
        self, *, hops: int | None, snr: float | None = None, max_parts: int, queued_ms: float = 0.0
    ) -> Allowance:
        """How many parts an answer may take; to be asked before the model is."""
        wait = self._spent_for(self._full_part_ms(), queued_ms)
        if wait > 0:
            return Allowance(0, "budget", wait)
        settings = self._settings()
        if self.channel_use() >= settings.slow_at_percent:
            return Allowance(1, "busy")
        if hops is not None and hops > FAR_HOPS:
            return Allowance(1, "far")
        if self._used_ms(queued_ms) > self._budget_ms() / 2:
            return Allowance(1, "half")
        if hops is not None and hops > NEAR_HOPS:
            return Allowance(min(2, max_parts), "far")
        if snr is not None and hops in (None, 0) and snr < self._snr_floor() + SNR_MARGIN_DB:
            return Allowance(min(2, max_parts), "weak")
        return Allowance(max_parts)

    def parts_that_fit(self, parts: int, part_bytes: int, reserved_ms: float) -> int:
        """How many of an answer's parts the budget has room for together; at least one, which then waits its turn."""
        each = self.airtime_ms(part_bytes, is_dm=True, has_reply=False)
        free = self._budget_ms() - self._used_ms(reserved_ms)
        return parts if free >= parts * each else max(1, int(free // each))

    def reserve(self, token: object, parts: int, part_bytes: int) -> None:
        """Keep room for a streamed answer's parts for a while; the same token again replaces the reservation."""
        until = self._clock.monotonic() + RESERVED_FOR_S
        self._reserved[token] = (until, parts * self.airtime_ms(part_bytes, is_dm=True, has_reply=False))

    def release(self, token: object) -> None:
        """Give a reservation back."""
        self._reserved.pop(token, None)

    # At the moment of sending.

    def wait_s(self, packet: Packet) -> float:
        """0: it may go now; else how long to wait before asking again."""
        now = self._clock.monotonic()
        if now < self._silent_until:
            return self._silent_until - now
        if (duty := self._duty_wait_s(packet.airtime_ms)) > 0:
            return duty
        if packet.kind == "command":
            return 0.0
        settings, use = self._settings(), self.channel_use()
        if use >= settings.hold_at_percent or (
            use >= settings.slow_at_percent and packet.reason in (RETRY, RETRY_RELAYED)
        ):
            return 10.0
        if packet.kind == "notice" or settings.budget_percent >= 100:
            return 0.0
        return self._free_in_s(packet.airtime_ms, self._budget_ms())

    def heard_alert(self, text: str) -> float | None:
        """The node says when it may send again (DUTY_CYCLE_LIMIT, protocol.md §3.2); returns the seconds."""
        match = _SEND_AGAIN.search(text)
        if match is None:
            return None
        unit = {"min": 60.0, "sec": 1.0, "hour": HOUR_S}[match.group(2).lower()]
        seconds = min(max(int(match.group(1)), 1) * unit, HOUR_S)
        self._silent_until = self._clock.monotonic() + seconds
        return seconds

    def refused_for_duty(self) -> float:
        """The node refused a packet for its duty cycle; returns how long nothing can be sent."""
        now = self._clock.monotonic()
        if self._silent_until <= now:
            self._silent_until = now + UNKNOWN_WAIT_S
        return self._silent_until - now

    def status(self, queued_ms: float = 0.0) -> dict[str, object]:
        """Facts for ``status``; JSON types only."""
        used = self._hour.used_ms(self._clock.monotonic())
        telemetry = self._telemetry()
        return {
            "used_ms": round(used),
            "reserved_ms": round(self._used_ms(queued_ms) - used),
            "used_percent": round(used / HOUR_S / 10, 3),
            "budget_percent": self._settings().budget_percent,
            "duty_cycle_percent": self._duty_percent(),
            "channel_utilization_percent": telemetry.channel_utilization_percent,
            "air_util_tx_percent": telemetry.air_util_tx_percent,
            "silent_for_s": round(max(0.0, self._silent_until - self._clock.monotonic()), 1),
        }

    # Sums.

    def _budget_ms(self) -> float:
        percent = self._settings().budget_percent
        return math.inf if percent >= 100 else percent * HOUR_S * 10

    def _used_ms(self, queued_ms: float) -> float:
        return self._hour.used_ms(self._clock.monotonic()) + queued_ms + self._reserved_ms()

    def _reserved_ms(self) -> float:
        now = self._clock.monotonic()
        self._reserved = {token: (until, ms) for token, (until, ms) in self._reserved.items() if until > now}
        return sum(ms for _, ms in self._reserved.values())

    def _full_part_ms(self) -> int:
        return self.airtime_ms(200, is_dm=True, has_reply=False)

    def _spent_for(self, ms: float, queued_ms: float) -> float:
        """0 when ``ms`` more fit beside what is used and reserved, else how long until they do."""
        pending = queued_ms + self._reserved_ms()
        return self._hour.free_in_s(self._clock.monotonic(), ms + pending, self._budget_ms())

    def _duty_percent(self) -> float:
        node = self.modem()
        return 100.0 if node.override_duty_cycle else DUTY_CYCLE_PERCENT.get(node.region, 100.0)

    def _duty_wait_s(self, ms: float) -> float:
        percent = self._duty_percent()
        if percent >= 100:
            return 0.0
        if (self._telemetry().air_util_tx_percent or 0.0) >= percent:
            return 30.0  # the node counts its relaying too; its own figure comes each minute
        return self._free_in_s(ms, percent * HOUR_S * 10)

    def _free_in_s(self, ms: float, limit_ms: float) -> float:
        """A packet larger than the whole limit may go in an empty hour."""
        return self._hour.free_in_s(self._clock.monotonic(), min(ms, limit_ms), limit_ms)

    def _snr_floor(self) -> float:
        return SNR_FLOOR_DB.get(self.modem().spreading_factor, -17.5)
