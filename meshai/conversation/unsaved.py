"""Answers while nothing can be stored: a full or read-only disk must not make the bot deaf (docs/memory.md §2.7).

What was said is held in RAM, in bounds, and stored as soon as the database takes it. Such answers end with
"(not saved)". There is no outbox without a database: one packet, and whether it arrives stays unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from meshai import identity
from meshai.clock import Clock
from meshai.commands.base import Call, Reply, Services
from meshai.commands.registry import find
from meshai.config.model import Settings
from meshai.conversation import persona
from meshai.conversation.responder import Turn
from meshai.conversation.router import Route, RouteKind, route_dm
from meshai.delivery.outbox import harmless_start
from meshai.delivery.parts import cut
from meshai.delivery.plain import to_plain
from meshai.errors import ModelError, StorageError
from meshai.identity import Person, Standing
from meshai.inbox import Question
from meshai.llm.base import ChatModel, ChatRequest
from meshai.memory.buffer import Held
from meshai.memory.memory import Ask, Memory
from meshai.radio.link import Inbound, RadioLink, SendRequest, node_num
from meshai.storage import conversations, identities
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

NOT_SAVED = " (not saved)"
NOT_NOW = "I cannot do that now: nothing can be stored on my computer."
REMEMBERED_PACKETS = 500
MOST_AT_ONCE = 5
BYTES_PER_TOKEN = 3


class _ReadOnly(Transaction):
    """Lets a command read; what it wants to write is refused."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def fetch_all(self, sql, params=()):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as Queries
        return await self._db.fetch_all(sql, params)

    async def execute(self, sql, params=()):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG002 - as Transaction
        raise StorageError("nothing can be stored")

    insert = execute

    def after_commit(self, call: Callable[[], None]) -> None:
        """There is no commit."""


class Unsaved:
    """Takes packets that the inbox could not store."""

    def __init__(
        self,
        db: Database,
        settings: Callable[[], Settings],
        clock: Clock,
        *,
        services: Services,
        model: ChatModel,
        memory: Memory,
        link: RadioLink,
        send: Callable[[SendRequest], None],
    ) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock
        self._services = services
        self._model = model
        self._memory = memory
        self._link = link
        self._send = send
        self._seen: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_PACKETS)
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, packet: Inbound, error: StorageError) -> None:
        """Answer a DM without storing anything; broadcasts and repeats are left alone."""
        key = (packet.from_num, packet.packet_id)
        allowed = packet.authenticated or not self._settings().access.require_pki
        if not packet.is_dm or packet.is_tapback or not allowed or key in self._seen:
            return
        self._seen.append(key)
        route = route_dm(packet.text)
        if route.kind is RouteKind.IGNORE or len(self._tasks) >= MOST_AT_ONCE:
            return
        task = asyncio.get_running_loop().create_task(self._answer(packet, route, error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def catch_up(self) -> None:
        """Store what is held as soon as the database takes it, in front of anything newer."""
        if self._memory.unsaved:
            await self._memory.flush()

    async def answer(self, turn: Turn, answer: Callable[[Turn], Awaitable[None]]) -> None:
        """``answer(turn)``, and one sentence to the person when the database fails in the middle of it."""
        try:
            await answer(turn)
        except StorageError as error:
            log.error("an answer could not be stored: %s", error)  # noqa: TRY400 - the sentence is enough
            question = turn.last
            target = node_num(question.person.node_id)
            self._send(
                SendRequest(
                    self._link.new_packet_id(),
                    target,
                    NOT_NOW,
                    reply_id=question.packet_id,
                    public_key=question.person.public_key,
                )
            )

    async def stop(self) -> None:
        """Cancel what is being answered."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, packet: Inbound, route: Route, error: StorageError) -> None:
        person, key = await self._person(packet)
        if route.kind is RouteKind.COMMAND:
            text = await self._command(packet, person, route)
        else:
            text = await self._chat(packet, person, key, route.text, error)
        limit = self._settings().reply.max_bytes - len(NOT_SAVED.encode())
        parts = cut(harmless_start(to_plain(text)), max_bytes=limit, max_parts=1, more_hint=" …").parts
        if parts:
            self._send(self._request(packet, person, parts[0] + NOT_SAVED))

    async def _chat(self, packet: Inbound, person: Person, key: str, text: str, error: StorageError) -> str:
        settings, now = self._settings(), self._clock.now()
        reply_tokens = settings.reply.max_bytes // BYTES_PER_TOKEN
        prompt = await self._memory.prompt(
            Ask(
                conv_id=person.conv_id,
                system=persona.system_prompt(settings),
                notes=persona.notes(person, now=now, max_bytes=settings.reply.max_bytes, parts=1),
                question=text,
                reply_tokens=reply_tokens,
                context_tokens=await self._model.context_tokens(),
                model=self._model.label,
                key=key,
            )
        )
        self._memory.hold(self._held(key, person, "user", text, packet.packet_id), error)
        request = ChatRequest(
            messages=prompt.messages,
            max_tokens=reply_tokens,
            temperature=settings.llm.temperature,
            question=text,
            conv_id=person.conv_id or 0,
        )
        try:
            answer = "".join([delta.text async for delta in self._model.stream(request)])
        except ModelError as failure:
            return failure.notice
        self._memory.hold(self._held(key, person, "assistant", answer), error)
        return answer

    async def _command(self, packet: Inbound, person: Person, route: Route) -> str:
        command, argument = find(route.word, route.text)
        if command is None or command.for_admins or (command.needs_memory and person.conv_id is None):
            return NOT_NOW
        question = Question(
            0, person, route, packet.packet_id, None, self._clock.now(), packet.hops, packet.rx_snr, packet.rx_rssi
        )
        call = Call(question, argument, self._clock.now(), self._services)
        try:
            call = Call(question, argument, call.now, self._services, seen=await command.look(call))
            outcome = await command.run(call, _ReadOnly(self._db))
        except StorageError:
            return NOT_NOW
        return outcome.text if isinstance(outcome, Reply) else NOT_NOW

    async def _person(self, packet: Inbound) -> tuple[Person, str]:
        """As far as the database can still be read; somebody new gets the node's own conversation key."""
        public_key = packet.public_key if packet.authenticated else None
        peer = self._link.peer(packet.from_num)
        name = peer.long_name if peer else ""
        key = conversations.dm_key(packet.sender_id)
        conv_id = None
        try:
            rows = await identities.of_node(self._db, packet.sender_id)
            row = next((row for row in rows if row.public_key == public_key), None)
            conv = await conversations.get(self._db, row.conv_id) if row else None
            if conv is not None:
                conv_id, key = conv.id, conv.key
            elif rows and public_key is not None:
                key = conversations.dm_key(packet.sender_id, public_key, second=True)
            standing = Standing.KNOWN if identity.current_key(rows) in (None, public_key) else Standing.STRANGER
        except StorageError:
            standing = Standing.STRANGER
        return Person(packet.sender_id, public_key, conv_id, standing, name), key

    def _held(self, key: str, person: Person, role: str, text: str, packet_id: int | None = None) -> Held:
        is_user = role == "user"
        return Held(
            key=key,
            kind="dm",
            node_id=person.node_id,
            role="user" if is_user else "assistant",
            content=text,
            now=self._clock.now(),
            sender=person.node_id if is_user else "",
            sender_name=person.name if is_user else self._settings().bot.name,
            packet_id=packet_id,
            public_key=person.public_key,
        )

    def _request(self, packet: Inbound, person: Person, text: str) -> SendRequest:
        own = self._link.node.hop_limit if self._link.node else 3
        return SendRequest(
            packet_id=self._link.new_packet_id(),
            to_num=packet.from_num,
            text=text,
            reply_id=packet.packet_id,
            public_key=person.public_key,
            hop_limit=None if packet.hops is None else min(own, packet.hops + 2),
        )
