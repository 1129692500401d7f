"""A virtual mesh: nodes, the air between them, one timeline and one seed."""

from __future__ import annotations

import random
from itertools import combinations

from meshai.radio.virtual.air import Air
from meshai.radio.virtual.frame import Link
from meshai.radio.virtual.node import VirtualNode
from meshai.radio.virtual.settings import NodeSettings
from meshai.radio.virtual.timeline import LoopTimeline, Timeline

FIRST_NUM = 0x0BAD0000


class Mesh:
    """Holds everything together. ``speed`` is protocol seconds per real second.

    With a ``timeline`` of the caller's (tests: ``Timeline()``, moved by ``advance``) ``speed`` is ignored. The same
    seed and the same inputs at the same protocol times give the same story.
    """

    def __init__(
        self, *, seed: int = 1, speed: float = 1.0, timeline: Timeline | None = None, udp: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.timeline = timeline or LoopTimeline(speed)
        self.air = Air(self.timeline, self.rng, udp=udp)
        self.nodes: dict[int, VirtualNode] = {}

    def add(
        self, settings: NodeSettings | None = None, *, num: int | None = None, key: bytes | None = None
    ) -> VirtualNode:
        """A new node, hearing nobody yet. Without a key one is drawn."""
        number = num if num is not None else self._free_num()
        private, public = self.rng.randbytes(32), key or self.rng.randbytes(32)
        node = VirtualNode(number, self.air, settings or NodeSettings(), private, public)
        self.nodes[number] = node
        return node

    def link(self, a: VirtualNode, b: VirtualNode, link: Link | None = None, *, both_ways: bool = True) -> None:
        """Bring two nodes into reach; ``link`` replaces what was between them."""
        self.air.link(a.num, b.num, link or Link(), both_ways=both_ways)

    def unlink(self, a: VirtualNode, b: VirtualNode) -> None:
        """Out of reach."""
        self.air.unlink(a.num, b.num)

    def introduce(self, *nodes: VirtualNode) -> None:
        """Let nodes (all, if none is named) know each other's names and keys, as after hours on the air together."""
        known = nodes or tuple(self.nodes.values())
        for a, b in combinations(known, 2):
            a.meet(b)
            b.meet(a)
        for node in known:
            if node.on:
                node.modules.settle()

    def start(self) -> None:
        """Let time flow on the running event loop."""
        if isinstance(self.timeline, LoopTimeline):
            self.timeline.start()

    def stop(self) -> None:
        """Freeze time."""
        if isinstance(self.timeline, LoopTimeline):
            self.timeline.stop()

    def _free_num(self) -> int:
        number = FIRST_NUM + self.rng.randrange(1, 0xFFFF)
        while number in self.nodes or any(number & 0xFF == other & 0xFF for other in self.nodes):
            number = FIRST_NUM + self.rng.randrange(1, 0xFFFF)
        return number
