"""Packet ids in the library's range, drawn before a send so that they can be committed first (protocol.md §3.4)."""

from __future__ import annotations

import secrets

COUNTER_BITS = 10


class PacketIds:
    """22 random bits above a 10-bit counter, as the library draws them; never 0, which means "none"."""

    def __init__(self) -> None:
        self._counter = secrets.randbits(COUNTER_BITS)

    def draw(self) -> int:
        """The next id."""
        while True:
            self._counter = (self._counter + 1) % (1 << COUNTER_BITS)
            packet_id = secrets.randbits(32 - COUNTER_BITS) << COUNTER_BITS | self._counter
            if packet_id:
                return packet_id
