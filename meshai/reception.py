"""From the link's events to the rooms that care: one queue, one consumer, nothing is awaited in the link's sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from meshai.clock import Clock
from meshai.conversation.front import Front
from meshai.conversation.unsaved import Unsaved
from meshai.delivery.sender import Sender
from meshai.errors import StorageError
from meshai.favourites import Favourites
from meshai.inbox import Inbox
from meshai.radio.link import Alert, Heard, Inbound, LinkChange, LinkEvent, LinkState, Receipt, node_id
from meshai.storage import nodes
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

MAX_EVENTS = 10_000
"""A node's own queue holds 32 packets; so many unhandled ones mean the database hangs. The oldest go."""
FLUSH_EVERY_S = 60.0
DRAIN_S = 5.0
"""At the end: what the node has handed over is gone there, so it is stored first (protocol.md §2.5)."""


class Reception:
    """Consumes what the radio link reports."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        inbox: Inbox,
        front: Front,
        sender: Sender,
        favourites: Favourites,
        unsaved: Unsaved,
        on_up: Callable[[], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._inbox = inbox
        self._front = front
        self._sender = sender
        self._favourites = favourites
        self._unsaved = unsaved
        self._on_up = on_up
        self._events: asyncio.Queue[LinkEvent | None] = asyncio.Queue()
        self._heard: dict[int, Heard] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._last_turn = clock.monotonic()

    def sink(self, event: LinkEvent) -> None:
        """Take one event from the link; never blocks."""
        if self._events.qsize() >= MAX_EVENTS:
            self._events.get_nowait()
        self._events.put_nowait(event)

    def stalled_s(self) -> float:
        """For how long a packet has waited without any being handled; 0 when none waits."""
        return 0.0 if self._events.empty() else self._clock.monotonic() - self._last_turn

    def start(self) -> None:
        """Begin consuming."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._consume(), name="reception"),
            loop.create_task(self._flush_regularly(), name="nodes heard"),
        ]

    async def stop(self) -> None:
        """Store what was taken from the node and who was heard; the link is closed by now."""
        if self._tasks:
            self._events.put_nowait(None)
            await asyncio.wait(self._tasks[:1], timeout=DRAIN_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._unsaved.catch_up()
        await self._flush()

    async def _consume(self) -> None:
        while (event := await self._events.get()) is not None:
            try:
                await self.handle(event)
            except StorageError as error:
                if isinstance(event, Inbound):
                    self._unsaved.take(event, error)
            except Exception:  # a bug in one event must not make the bot deaf
                log.exception("handling %s failed", type(event).__name__)
            self._last_turn = self._clock.monotonic()

    async def handle(self, event: LinkEvent) -> None:
        """Hand one event to the room that cares."""
        match event:
            case Inbound():
                await self._unsaved.catch_up()
                question = await self._inbox.accept(event)
                if question is not None:
                    self._favourites.talked(question.person)
                    await self._front.take(question)
            case Receipt():
                self._sender.on_receipt(event)
            case Heard():
                self._heard[event.from_num] = event
                self._sender.on_heard(event)
            case LinkChange():
                self._inbox.on_link(event.state)
                if event.state is LinkState.UP:
                    self._on_up()
                self._sender.on_link(event)
            case Alert():
                log.info("the node says: %s", event.text)
                self._sender.on_alert(event)

    async def _flush_regularly(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_EVERY_S)
            await self._unsaved.catch_up()
            await self._flush()

    async def _flush(self) -> None:
        """Nodes are heard every few seconds on a busy mesh; a card lives longer with one commit a minute.

        Only nodes that ever talked to the bot are kept: the mesh's whole traffic is nobody's business.
        """
        heard, self._heard = self._heard, {}
        if not heard:
            return

        async def body(tx: Transaction) -> None:
            for event in heard.values():
                if await nodes.get(tx, node_id(event.from_num)) is not None:
                    await nodes.heard(tx, node_id(event.from_num), now=event.at, hops=event.hops, snr=event.snr)

        try:
            await self._db.transaction(body)
        except StorageError as error:
            log.error("could not store who was heard: %s", error)  # noqa: TRY400 - the sentence is enough
