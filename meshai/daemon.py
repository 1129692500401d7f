"""Builds the parts, starts them, stops them, reloads them; nothing else."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import cast

from meshai.clock import Clock, SystemClock
from meshai.commands.base import Services
from meshai.config.model import Settings
from meshai.conversation.dispatch import Dispatcher
from meshai.conversation.exchange import Exchange
from meshai.conversation.front import Front
from meshai.conversation.notices import Notices
from meshai.conversation.responder import Responder
from meshai.conversation.unsaved import Unsaved
from meshai.delivery.governor import Governor
from meshai.delivery.outbox import Outbox
from meshai.delivery.sender import Sender
from meshai.favourites import Favourites
from meshai.inbox import Inbox
from meshai.llm.base import ChatModel
from meshai.memory.memory import Memory
from meshai.operations import operations
from meshai.operations.base import silent
from meshai.operations.contact import ContactOperations
from meshai.ops.health import Health
from meshai.ops.node_advice import node_problems
from meshai.ops.node_facts import described
from meshai.pause import Pause
from meshai.radio.link import LinkEvent, RadioLink
from meshai.reception import Reception
from meshai.recovery import Recovery
from meshai.storage import delivery_counts, nodes, tokens
from meshai.storage.database import Database
from meshai.storage.totals import totals

log = logging.getLogger(__name__)


class Daemon:
    """The running program between an open database and its end.

    ``link`` and ``model`` are handed in open but not started; the daemon stops and closes both.
    """

    def __init__(
        self,
        settings: Settings,
        db: Database,
        link: RadioLink,
        model: ChatModel,
        *,
        summarizer: ChatModel | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.db = db
        self.link = link
        self.model = model
        self.summarizer = summarizer or model
        self.clock = clock or SystemClock()
        self.started_at = self.clock.monotonic()
        self._stopping: list[Callable[[], Awaitable[None]]] = []
        self._build()

    def _build(self) -> None:
        clock, db, link = self.clock, self.db, self.link
        self.governor = Governor(lambda: self.settings.airtime, clock, node=lambda: link.node, telemetry=link.telemetry)
        self.outbox = Outbox(
            lambda: self.settings.reply,
            clock,
            link.new_packet_id,
            governor=self.governor,
        )
        self.sender = Sender(db, link, lambda: self.settings.reply, clock, self.governor)
        self.outbox.wake = self.sender.wake
        self.memory = Memory(
            db,
            self.settings.memory,
            self.model,
            clock,
            boot_id=secrets.token_hex(8),
            parallel=self.settings.llm.parallel,
            summariser=self.summarizer,
        )
        self.notices = Notices(db, clock, self.outbox)
        self.exchange = Exchange(
            db,
            lambda: self.settings,
            clock,
            memory=self.memory,
            model=self.model,
            outbox=self.outbox,
            governor=self.governor,
            notices=self.notices,
        )
        self.responder = Responder(
            lambda turn: self.unsaved.answer(turn, self.exchange.answer),
            parallel=self.settings.llm.parallel,
            max_waiting=lambda: self.settings.limits.queue,
        )
        self.pause = Pause(clock)
        self.dispatcher = Dispatcher(db, self._services(), self.responder, self.notices)
        self.front = Front(db, lambda: self.settings, clock, self.dispatcher, self.responder, self.notices, self.pause)
        self.inbox = Inbox(db, lambda: self.settings, clock, node=lambda: link.node, peer=link.peer)
        self.favourites = Favourites(db, link, clock, is_wanted=lambda: self.settings.access.favourite)
        self.contact = ContactOperations(clock, lambda: link.node, link.peer)
        self.operations = {
            **operations(db, clock, self.memory, lambda: self.settings, accepted=self.favourites.rejoin),
            **self.contact.table(),
        }
        self.recovery = Recovery(db, lambda: self.settings, clock, self.front, self.responder, self.exchange)
        self.unsaved = Unsaved(
            db,
            lambda: self.settings,
            clock,
            services=self._services(),
            model=self.model,
            memory=self.memory,
            link=link,
            send=self.sender.send_unstored,
        )
        self.reception = Reception(
            db, clock, self.inbox, self.front, self.sender, self.favourites, self.unsaved, self._look_at_node
        )
        self.health = Health(
            must_restart=link.must_restart,
            stalled_s={
                "inbox": self.reception.stalled_s,
                "outbox": lambda: clock.monotonic() - self.sender.progress(),
            },
        )

    def _services(self) -> Services:
        return Services(
            settings=lambda: self.settings,
            clock=self.clock,
            link=self.link,
            model=self.model,
            memory=self.memory,
            pause=self.pause,
            outbox=self.outbox,
            queue_length=lambda: self.responder.waiting,
            airtime=self.governor.status,
            started_at=self.started_at,
        )

    def problems(self) -> list[str]:
        """What is wrong with the own node's settings."""
        return node_problems(self.link.node, self.settings)

    async def _waiting_keys(self) -> list[str]:
        rows = await self.operations["identity.list"]({}, silent)
        waiting = [row for row in cast("list[dict[str, str]]", rows) if row["standing"] == "waiting"]
        return [
            f"{row['node_id']} shows a second key {row['fingerprint']}; when its owner confirms that: "
            f"meshai identity accept '{row['node_id']}' {row['fingerprint']}"
            for row in waiting
        ]

    def _heard(self, event: LinkEvent) -> None:
        if not self.contact.take(event):
            self.reception.sink(event)

    def _look_at_node(self) -> None:
        for problem in self.problems():
            log.error("%s", problem)

    async def start(self) -> None:
        """Take up what the last run left, then listen. A missing node is no error."""
        self.inbox.away_s = await self.recovery.away_s()
        await self.front.start()
        await self.memory.start()
        self._stopping.append(self.memory.stop)
        await self.sender.start()
        self._stopping.append(self.sender.stop)
        self._stopping.append(self.responder.close)
        await self.recovery.resume()
        self.reception.start()
        self._stopping.append(self.reception.stop)
        await self.link.start(self._heard)
        self._stopping.append(self.unsaved.stop)
        self._stopping.append(self.link.stop)
        self._stopping.append(self.favourites.stop)
        self._heartbeat = asyncio.create_task(self.recovery.note_alive_regularly(), name="alive")

    async def stop(self) -> None:
        """Stop in the opposite order; what is not finished resumes with the next start."""
        self._heartbeat.cancel()
        while self._stopping:
            step = self._stopping.pop()
            try:
                await step()
            except Exception:  # one part that cannot stop must not keep the others from stopping
                log.exception("stopping %s failed", step)
        await self.recovery.note_alive()
        await self.model.aclose()
        if self.summarizer is not self.model:
            await self.summarizer.aclose()

    def reload(self, settings: Settings) -> None:
        """Take over settings that can change while running; the caller has dropped those that cannot."""
        self.settings = settings
        self.front.apply_limits()
        self.memory.reconfigure(settings.memory)
        self.sender.wake()

    async def status(self) -> dict[str, object]:
        """Everything ``meshai status`` shows of the running parts; JSON types only."""
        node = self.link.node
        return {
            "uptime_s": round(self.clock.monotonic() - self.started_at, 1),
            "link": self.link.status(),
            "node": described(node) if node else None,
            "queue": {"waiting": self.responder.waiting, "in_progress": self.responder.in_progress},
            "delivery": self.sender.status(),
            "last_delivered_at": await delivery_counts.last_delivered(self.db),
            "airtime": self.governor.status(),
            "tokens": await tokens.on_day(self.db, self.clock.now()),
            "model": {"label": self.model.label, **self.model.status()},
            "memory": {"strategy": self.settings.memory.strategy, **await totals(self.db)},
            "nodes": [asdict(row) for row in await nodes.every(self.db)],
            "problems": self.problems() + await self._waiting_keys(),
            "dropped": dict(self.inbox.counters.dropped),
        }
