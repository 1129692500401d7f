"""What the operator can do with the data.

The same functions serve the control socket and, when no daemon runs, the subcommands under the database's lock.
"""

from __future__ import annotations

from collections.abc import Callable

from meshai.clock import Clock
from meshai.config.model import Settings
from meshai.memory.memory import Memory
from meshai.operations.base import Operation
from meshai.operations.identity import IdentityOperations
from meshai.operations.memory import MemoryOperations
from meshai.operations.replay import ReplayOperations
from meshai.storage.database import Database


def operations(
    db: Database,
    clock: Clock,
    memory: Memory,
    settings: Callable[[], Settings],
    *,
    accepted: Callable[[str], None] = lambda _node_id: None,
) -> dict[str, Operation]:
    """Every operation by name. ``accepted`` is told of a node whose new key was accepted."""
    return {
        **IdentityOperations(db, clock, settings=settings, accepted=accepted).table(),
        **MemoryOperations(db, clock, memory).table(),
        **ReplayOperations(db).table(),
    }
