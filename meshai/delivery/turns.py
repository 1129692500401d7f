"""Whose packet goes next: priorities first, then the person who was served longest ago."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from meshai.storage.outbound import Packet

Person = tuple[str, bytes | None, int | None]
FOREVER_S = 15.0


class Gate(Protocol):
    """What decides whether a packet may go now."""

    def wait_s(self, packet: Packet) -> float:
        """0: it may go; else the seconds until it is worth asking again."""
        ...


class Turns:
    """Remembers who was served when; holds no packets."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._served: dict[Person, int] = {}
        self._count = 0

    def served(self, person: Person) -> None:
        """This person had a turn."""
        self._count += 1
        self._served[person] = self._count
        if len(self._served) > 2000:
            for old in sorted(self._served, key=lambda key: self._served[key])[:1000]:
                del self._served[old]

    def choose(
        self, packets: Sequence[Packet], waiting: Collection[Person], *, now: float
    ) -> tuple[Packet | None, float]:
        """The next packet, or None and how long until one is due. ``packets`` are in each person's own order."""
        delay = FOREVER_S
        heads: list[Packet] = []
        for packet, wait in self._heads(packets, waiting, now):
            if wait > 0:
                delay = min(delay, wait)
            else:
                heads.append(packet)
        if not heads:
            return None, delay
        return min(heads, key=lambda p: (p.priority, self._served.get(p.person, 0), p.id)), 0.0

    def _heads(
        self, packets: Sequence[Packet], waiting: Collection[Person], now: float
    ) -> Iterator[tuple[Packet, float]]:
        """Each person's first packet that may go, and those that keep later parts of their answer waiting."""
        blocked: set[int] = set()
        found: set[Person] = set()
        for packet in packets:
            if packet.answer_id in blocked or packet.person in found:
                continue
            if packet.person in waiting and packet.kind != "tapback":
                continue
            wait = max(0.0, (packet.not_before or 0.0) - now) or self._gate.wait_s(packet)
            if wait > 0:
                blocked.add(packet.answer_id)
            else:
                found.add(packet.person)
            yield packet, wait
