"""A node's database of other nodes: names, keys, favourites, and who is forgotten when it is full."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class KnownNode:
    """What a node knows of another."""

    num: int
    long_name: str = ""
    short_name: str = ""
    key: bytes = b""  # the first one seen wins (protocol.md §6)
    role: int = 0
    is_licensed: bool = False
    has_user: bool = False
    favourite: bool = False
    ignored: bool = False
    next_hop: int = 0
    last_heard: int = 0  # the node's clock, 0 when it had none
    snr: float = 0.0
    hops_away: int | None = None
    via_mqtt: bool = False


class NodeDatabase:
    """At most ``limit`` nodes, the own one included. Full: the one longest unheard goes, favourites never."""

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit
        self._nodes: OrderedDict[int, KnownNode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, num: int) -> bool:
        return num in self._nodes

    def get(self, num: int) -> KnownNode | None:
        """A node's entry."""
        return self._nodes.get(num)

    def all(self) -> list[KnownNode]:
        """Every entry, in the order of first sight."""
        return sorted(self._nodes.values(), key=lambda node: node.num)

    def touch(self, num: int) -> KnownNode | None:
        """The entry of a node just heard, made if there is room; None when only favourites are in the way."""
        node = self._nodes.get(num)
        if node is None:
            if len(self._nodes) >= self.limit - 1 and not self._evict():
                return None
            node = self._nodes[num] = KnownNode(num)
        self._nodes.move_to_end(num)
        return node

    def learn(
        self, num: int, *, long_name: str, short_name: str, key: bytes, role: int = 0, is_licensed: bool = False
    ) -> None:
        """Take over a NodeInfo; one with another key than the stored is refused whole (protocol.md §6, §9.5)."""
        node = self.touch(num)
        if node is None or (node.key and key and node.key != key):
            return
        node.long_name, node.short_name, node.role, node.is_licensed = long_name, short_name, role, is_licensed
        node.has_user = True
        node.key = key or node.key

    def key_of(self, num: int) -> bytes:
        """The stored key, empty when there is none."""
        node = self._nodes.get(num)
        return node.key if node is not None else b""

    def forget(self, num: int) -> None:
        """Remove a node with its key; it comes back with its next NodeInfo."""
        self._nodes.pop(num, None)

    def clear(self) -> None:
        """Empty the database: a reset."""
        self._nodes.clear()

    def _evict(self) -> bool:
        victim = next((num for num, node in self._nodes.items() if not node.favourite), None)
        if victim is None:
            return False
        del self._nodes[victim]
        return True
