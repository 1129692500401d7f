"""What a restart finds: open questions, answers broken in the middle, and how long nobody listened."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from meshai import identity
from meshai.clock import Clock
from meshai.config.model import Settings
from meshai.conversation.exchange import Exchange
from meshai.conversation.front import Front
from meshai.conversation.responder import Responder
from meshai.conversation.router import Route, route_channel, route_dm
from meshai.errors import StorageError
from meshai.identity import Person
from meshai.inbox import STALE_S, Question
from meshai.radio.link import Channel
from meshai.storage import answers, inbound, nodes
from meshai.storage.answers import AnswerRow
from meshai.storage.database import Database, Transaction
from meshai.storage.inbound import InboundRow

log = logging.getLogger(__name__)

ALIVE_EVERY_S = 60.0
ALIVE_KEY = "alive_at"


class Recovery:
    """Takes up what the last run left."""

    def __init__(
        self,
        db: Database,
        settings: Callable[[], Settings],
        clock: Clock,
        front: Front,
        responder: Responder,
        exchange: Exchange,
    ) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock
        self._front = front
        self._responder = responder
        self._exchange = exchange

    async def away_s(self) -> float | None:
        """How long no daemon ran before this one, by the wall clock; None when nobody knows."""
        at = await self._db.fetch_value("SELECT value FROM meta WHERE key = ?", (ALIVE_KEY,))
        away = self._clock.now() - float(at) if at is not None else -1.0
        return away if away >= 0 else None

    async def note_alive(self) -> None:
        """Remember that a daemon ran at this time; a database that takes nothing now is no reason to stop."""
        with contextlib.suppress(StorageError):
            await self._db.transaction(
                lambda tx: tx.execute(
                    "INSERT INTO meta (key, value) VALUES (?, ?) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (ALIVE_KEY, str(self._clock.now())),
                )
            )

    async def note_alive_regularly(self) -> None:
        """``note_alive`` once a minute, for ever."""
        while True:
            await self.note_alive()
            await self._clock.sleep(ALIVE_EVERY_S)

    async def resume(self) -> None:
        """Resume questions younger than ten minutes; expire the others. Broken answers go on or are closed."""
        broken = {row.inbound_id: row for row in await answers.incomplete(self._db)}
        last_of = {row.id: row.inbound_id for row in broken.values()}
        together: dict[int, list[Question]] = {}  # by the last question of the turn, which comes last here, too
        for row in await inbound.open_questions(self._db):
            question = await self._db.transaction(partial(self._question, row))
            last = last_of.get(row.answer_id or 0)
            if row.id in broken:
                await self._take_up(together.pop(row.id, []), question, broken.pop(row.id))
            elif last is not None:
                together.setdefault(last, []).append(question)
            else:
                await self._take(question)
        for answer in broken.values():
            await self._db.transaction(partial(self._close, answer))

    async def _take_up(self, earlier: list[Question], question: Question, broken: AnswerRow) -> None:
        """An answer that broke in the middle, with all the questions it answers."""
        if self._is_fresh(question):
            self._responder.submit(question, resumes=broken, earlier=earlier)
        else:
            await self._exchange.close_broken([*earlier, question], broken)

    def _is_fresh(self, question: Question) -> bool:
        return 0 <= self._clock.now() - question.received_at <= STALE_S

    async def _take(self, question: Question) -> None:
        if self._is_fresh(question):
            log.info("resuming a question of %s from before the restart", question.person.node_id)
            await self._front.resume(question)
        else:
            await self._front.take(replace(question, expired=True))

    async def _question(self, row: InboundRow, tx: Transaction) -> Question:
        node = await nodes.get(tx, row.node_id)
        name = node.long_name if node else ""
        channel = None
        if row.channel_index is not None:
            channel = Channel(row.channel_index, "")
            person = Person(row.node_id, None, row.conv_id, identity.Standing.NUMBER, name)
        else:
            pinned = identity.pinned_admin_key(self._settings().access.admins, row.node_id)
            person = await identity.identify(
                tx, row.node_id, row.public_key, now=self._clock.now(), pinned=pinned, name=name
            )
            person = replace(person, conv_id=row.conv_id)
        return Question(
            inbound_id=row.id,
            person=person,
            route=self._route(row),
            packet_id=row.packet_id,
            message_id=row.message_id,
            received_at=row.received_at,
            hops=row.hops,
            snr=row.snr,
            rssi=row.rssi,
            reply_id=row.reply_id,
            channel=channel,
            is_tapback=row.kind == "tapback",
        )

    def _route(self, row: InboundRow) -> Route:
        if row.channel_index is not None:
            return route_channel(row.content, self._settings().bot.name, mention_only=False)
        return route_dm(row.content)

    async def _close(self, answer: AnswerRow, tx: Transaction) -> None:
        """An incomplete answer whose question is gone: what was sent is the whole of it."""
        await answers.grow(tx, answer.id, text=answer.text, complete=True)
