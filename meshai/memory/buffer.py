"""When nothing can be stored: the newest messages in RAM, until the database takes them (docs/memory.md §2.7)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from meshai.errors import StorageError
from meshai.storage import conversations, identities, messages
from meshai.storage.conversations import Kind
from meshai.storage.database import Database, Transaction
from meshai.storage.messages import Role, StoredMessage

log = logging.getLogger(__name__)

MOST_MESSAGES = 50
"""Held for one conversation."""
MOST_CONVERSATIONS = 200
LOG_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Held:
    """A message that could not be stored."""

    key: str
    kind: Kind
    node_id: str | None
    role: Role
    content: str
    now: float
    sender: str = ""
    sender_name: str = ""
    packet_id: int | None = None
    is_command: bool = False
    public_key: bytes | None = None  # whose it is


class Buffer:
    """Held messages by conversation key; bounded."""

    def __init__(self) -> None:
        self._held: dict[str, deque[Held]] = {}
        self._logged_at: float | None = None

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._held.values())

    def hold(self, message: Held) -> None:
        """Keep a message; the oldest of its conversation gives way to the fifty-first."""
        if message.key not in self._held and len(self._held) >= MOST_CONVERSATIONS:
            self._held.pop(next(iter(self._held)))
        self._held.setdefault(message.key, deque(maxlen=MOST_MESSAGES)).append(message)

    def drop(self, key: str) -> None:
        """Forget a conversation's messages."""
        self._held.pop(key, None)

    def rows(self, key: str) -> list[StoredMessage]:
        """A conversation's messages for a prompt."""
        return [
            StoredMessage(-1 - n, 0, 2**40 + n, 0, held.role, held.sender, held.sender_name, held.content, held.now)
            for n, held in enumerate(self._held.get(key, ()))
            if held.role != "notice" and not held.is_command
        ]

    def complain(self, error: StorageError, monotonic: float) -> None:
        """One line an hour about the database."""
        if self._logged_at is None or monotonic - self._logged_at >= LOG_EVERY_S:
            self._logged_at = monotonic
            log.error("nothing can be stored: %s; answering from memory until it can", error)

    async def flush(self, db: Database, monotonic: float) -> bool:
        """Store everything, in order; False if the database still refuses."""
        waiting: Sequence[Held] = [held for queue in self._held.values() for held in queue]
        if not waiting:
            return True
        try:
            await db.transaction(lambda tx: _store(tx, waiting))
        except StorageError as error:
            self.complain(error, monotonic)
            return False
        self._held.clear()
        self._logged_at = None
        log.warning("the database can be written again: %d messages stored", len(waiting))
        return True


async def _store(tx: Transaction, waiting: Sequence[Held]) -> None:
    for held in waiting:
        conv = await conversations.get_or_create(tx, held.key, kind=held.kind, node_id=held.node_id, now=held.now)
        if held.node_id and held.public_key and not await identities.of_node(tx, held.node_id):
            await identities.insert(
                tx, held.node_id, held.public_key, conv.id, now=held.now
            )  # met while nothing was stored
        await messages.append(
            tx,
            conv.id,
            role=held.role,
            content=held.content,
            now=held.now,
            sender=held.sender,
            sender_name=held.sender_name,
            packet_id=held.packet_id,
            is_command=held.is_command,
        )
