"""What the outbox holds, as of the sender's last turn: for its next decisions and for ``status``."""

from __future__ import annotations

from meshai.storage import airtime, outbound
from meshai.storage.database import Database

MOST_NODES = 10


class Overview:
    """Figures of the outbox and of today's airtime."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.held_nodes: set[str] = set()
        self.counts: dict[str, int] = {}
        self.queued_ms = 0
        self.newest_id = 0
        self.today: dict[str, object] = {}

    async def refresh(self, now: float) -> None:
        """Read everything again; raises StorageError."""
        self.held_nodes = await outbound.nodes_with_held(self._db)
        self.counts = await outbound.counts(self._db)
        self.queued_ms = await outbound.queued_airtime_ms(self._db)
        self.newest_id = await outbound.newest_id(self._db)
        spent = await airtime.on_day(self._db, now)
        self.today = {
            "packets": sum(packets for _, packets, _ in spent),
            "airtime_ms": sum(ms for _, _, ms in spent),
            "by_node": {node: ms for node, _, ms in spent[:MOST_NODES]},
        }
