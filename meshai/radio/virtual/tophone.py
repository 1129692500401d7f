"""What waits in a node for its client: mesh packets, queue states, notifications (docs/protocol.md §2.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from meshai.radio.virtual.frame import TEXT

QUEUE_STATES = 4
"""Queue states waiting at once; more are dropped, oldest first (protocol.md §9.11)."""


class ToPhone:
    """One queue for all clients of a node: they compete for it, and what one took is gone.

    It outlives the clients' absence and is lost at a reboot. Full, a text displaces the oldest packet and
    anything else, acknowledgements included, is dropped (26:MeshService.cpp:319).
    """

    def __init__(self, capacity: int = 32) -> None:
        self.capacity = capacity
        self._packets: deque[Any] = deque()
        self._states: deque[Any] = deque(maxlen=QUEUE_STATES)
        self._notifications: deque[Any] = deque(maxlen=QUEUE_STATES)
        self._watchers: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._packets)

    def watch(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever something is put in."""
        self._watchers.append(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Stop calling."""
        if wake in self._watchers:
            self._watchers.remove(wake)

    def put(self, packet: Any) -> None:  # noqa: ANN401 - protobuf objects have no types
        """A mesh packet for whoever comes first."""
        if len(self._packets) >= self.capacity:
            if packet.decoded.portnum != TEXT:
                return
            self._packets.popleft()
        self._packets.append(packet)
        self._wake()

    def put_state(self, state: Any) -> None:  # noqa: ANN401
        """A QueueStatus."""
        self._states.append(state)
        self._wake()

    def put_notification(self, notification: Any) -> None:  # noqa: ANN401
        """A ClientNotification."""
        self._notifications.append(notification)
        self._wake()

    def take(self) -> tuple[str, Any] | None:
        """The next thing as (FromRadio field, message): states first, then notifications, then packets."""
        for field, queue in (
            ("queueStatus", self._states),
            ("clientNotification", self._notifications),
            ("packet", self._packets),
        ):
            if queue:
                return field, queue.popleft()
        return None

    def forget_states(self) -> None:
        """What was in a client's hand when it left is lost; mesh packets stay (recording 10)."""
        self._states.clear()

    def clear(self) -> None:
        """A reboot."""
        self._packets.clear()
        self._states.clear()
        self._notifications.clear()

    def _wake(self) -> None:
        for wake in list(self._watchers):
            wake()
