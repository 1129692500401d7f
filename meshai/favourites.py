"""Keeps users' nodes in the radio's node database, where an evicted key could be replaced by a forger's.

See docs/protocol.md §6: favourites are never evicted. After a key was accepted the node must also forget the old key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from meshai.clock import Clock
from meshai.errors import RadioError, StorageError
from meshai.identity import Person, Standing
from meshai.radio.link import RadioLink, node_num
from meshai.storage.database import Database

log = logging.getLogger(__name__)

MOST = 40
"""Half of the smallest node database (80 nodes, docs/protocol.md §5.1): the mesh needs room too."""
WAIT_FOR_NODEINFO_S = 1800.0
LOOK_EVERY_S = 5.0


class Favourites:
    """Marks nodes as favourites, each once, in the background."""

    def __init__(self, db: Database, link: RadioLink, clock: Clock, *, is_wanted: Callable[[], bool]) -> None:
        self._db = db
        self._link = link
        self._clock = clock
        self._is_wanted = is_wanted
        self._asked: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def talked(self, person: Person) -> None:
        """Somebody with a pinned key talked to us."""
        if self._is_wanted() and person.standing is Standing.KNOWN and person.node_id not in self._asked:
            self._asked.add(person.node_id)
            self._start(self._keep(person.node_id))

    def rejoin(self, node_id: str) -> None:
        """A new key was accepted: the radio forgets the node, and keeps it again once its NodeInfo came."""
        self._asked.discard(node_id)
        self._start(self._rejoin(node_id))

    async def stop(self) -> None:
        """Cancel what waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        async def quietly() -> None:
            try:
                await work
            except StorageError as error:
                log.warning("favourites: %s", error)

        task = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, node_id: str) -> None:
        done = await self._db.fetch_value("SELECT favourite_at FROM nodes WHERE node_id = ?", (node_id,))
        count = await self._db.fetch_value("SELECT count(*) FROM nodes WHERE favourite_at IS NOT NULL")
        if done is not None or count >= MOST:
            return
        try:
            await self._link.set_favourite(node_num(node_id))
        except RadioError as error:
            self._asked.discard(node_id)  # again when it talks next
            log.debug("could not make %s a favourite: %s", node_id, error)
            return
        await self._db.transaction(
            lambda tx: tx.execute("UPDATE nodes SET favourite_at = ? WHERE node_id = ?", (self._clock.now(), node_id))
        )
        log.info("%s is a favourite of the radio now", node_id)

    async def _rejoin(self, node_id: str) -> None:
        num = node_num(node_id)
        try:
            await self._link.remove_node(num)
        except RadioError as error:
            log.warning("could not remove %s from the radio's node database: %s; remove it by hand", node_id, error)
            return
        await self._db.transaction(
            lambda tx: tx.execute("UPDATE nodes SET favourite_at = NULL WHERE node_id = ?", (node_id,))
        )
        log.info("%s was removed from the radio's node database; waiting for its NodeInfo", node_id)
        deadline = self._clock.monotonic() + WAIT_FOR_NODEINFO_S
        while self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_EVERY_S)
            peer = self._link.peer(num)
            if peer is not None and (peer.long_name or peer.short_name):
                if self._is_wanted():
                    await self._keep(node_id)
                return
        log.warning("%s has not introduced itself again yet", node_id)
