from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshai.config.model import Memory as MemorySettings
from meshai.config.model import Tuning
from meshai.errors import EmptyAnswerError
from meshai.llm.base import ChatRequest, Completion, Delta, Finish, Purpose, Usage
from meshai.memory import verify
from meshai.memory.memory import Ask, Memory, Prompt
from meshai.storage import conversations, messages
from meshai.storage.conversations import Conversation
from meshai.storage.database import Database, Transaction
from meshai.storage.messages import StoredMessage

PERSONA = "You are a helpful assistant on a radio mesh. Answer in one short text."
START = 1_750_000_000.0


class FakeClock:
    """Time that stands still until a test moves it; sleepers wake when it passes them."""

    def __init__(self, now: float = START) -> None:
        self.wall = now
        self.mono = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    async def sleep(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.mono + seconds, waiter))
        await waiter

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.mono += seconds
        for due, waiter in self._sleepers:
            if due <= self.mono and not waiter.done():
                waiter.set_result(None)
        self._sleepers = [(due, waiter) for due, waiter in self._sleepers if not waiter.done()]


class FakeModel:
    """Summarises by keeping the first words of each message; ``answers`` are given first, exceptions are raised."""

    def __init__(self, context: int = 4096) -> None:
        self.context = context
        self.answers: list[str | Exception] = []
        self.always: str | Exception | None = None
        self.requests: list[ChatRequest] = []
        self.offline = False
        self.gate: asyncio.Event | None = None
        self.usage: Callable[[ChatRequest], Usage] = lambda request: Usage()

    label = "fake"
    leaves_house = False

    @property
    def is_offline(self) -> bool:
        return self.offline

    async def context_tokens(self) -> int:
        return self.context

    async def complete(self, request: ChatRequest) -> Completion:
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else self.always
        if isinstance(answer, Exception):
            raise answer
        text = self._summary(request) if answer is None else answer
        if not text:
            raise EmptyAnswerError
        return Completion(text, Finish(usage=self.usage(request), model="fake-1"))

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        yield Delta((await self.complete(request)).text)

    def _summary(self, request: ChatRequest) -> str:
        body = request.messages[-1].content
        texts: list[str] = []
        for title in ("Previous summary:\n", "Summaries:\n"):
            if title in body:
                texts.append(body.split(title, 1)[1].split("\n\n", 1)[0].replace("\n", " "))
        if "Messages:\n" in body:
            for line in body.split("Messages:\n", 1)[1].split("\n\nSummary:", 1)[0].splitlines():
                words = line.split(": ", 1)[-1].split()
                texts.append(" ".join(word for word in words if any(c.isdigit() or c.isupper() for c in word)))
        words = " ".join(text for text in texts if text).split()
        limit = request.max_tokens * 2 // 3
        return "Talk about " + " ".join(words[-limit:] if len(words) > limit else words) + "."

    def status(self) -> dict[str, object]:
        return {}

    async def aclose(self) -> None: ...

    @property
    def purposes(self) -> list[Purpose]:
        return [request.purpose for request in self.requests]


class Chat:
    """One person's conversation with a memory over a real database."""

    def __init__(self, db: Database, memory: Memory, model: FakeModel, clock: FakeClock, conv: Conversation) -> None:
        self.db, self.memory, self.model, self.clock, self.id = db, memory, model, clock, conv.id
        self.key = conv.key
        self.persona = PERSONA

    async def conv(self) -> Conversation:
        return await conversations.load(self.db, self.id)

    async def problems(self) -> list[str]:
        """Broken invariants, as ``memory verify`` sees them."""
        return [str(problem) for problem in await verify.check(self.db, now=self.clock.now(), deep=False)]

    async def add(self, role: str, text: str, **more: Any) -> StoredMessage:
        self.clock.advance(1)

        async def body(tx: Transaction) -> StoredMessage:
            return await messages.append(
                tx,
                self.id,
                role=role,
                content=text,
                now=self.clock.now(),
                **more,  # type: ignore[arg-type]
            )

        return await self.db.transaction(body)

    async def ask(
        self, question: str, *ids: int, context: int = 4096, reply: int = 200, notes: tuple[str, ...] = ()
    ) -> Prompt:
        return await self.memory.prompt(
            Ask(self.id, self.persona, notes or ("now 12:00",), question, ids, reply, context, "fake")
        )

    async def exchange(self, question: str, answer: str = "", **options: Any) -> Prompt:
        row = await self.add("user", question, sender="!a1b2c3d4", sender_name="Anna")
        prompt = await self.ask(question, row.id, **options)
        await self.add("assistant", answer or f"ACK {question[:40]}", reply_to=row.id)
        self.memory.note_exchange(self.id)
        return prompt

    async def talk(self, count: int, *, settle: bool = True, text: str = "Message {n} about Hut {n}") -> None:
        for n in range(count):
            await self.exchange(text.format(n=n))
            if settle:
                await self.memory.settle()


MakeChat = Callable[..., Awaitable[Chat]]


@pytest.fixture
def kit() -> Any:
    """The fakes as classes, for tests that build their own world."""
    return SimpleNamespace(Clock=FakeClock, Model=FakeModel, Chat=Chat)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "meshai.db")
    yield database
    await database.close()


@pytest.fixture
async def chat(db: Database, model: FakeModel, clock: FakeClock) -> AsyncIterator[MakeChat]:
    """Make a conversation: ``await chat(strategy="rolling", tuning={...}, node="!...")``."""
    memories: list[Memory] = []

    async def make(
        *, node: str = "!a1b2c3d4", start: bool = True, tuning: dict[str, Any] | None = None, **settings: Any
    ) -> Chat:
        if not memories or settings or tuning:
            values = MemorySettings(**settings, tuning=Tuning(**(tuning or {})))
            memory = Memory(db, values, model, clock, boot_id="boot")  # type: ignore[arg-type]
            memories.append(memory)

        async def body(tx: Transaction) -> Conversation:
            return await conversations.get_or_create(tx, f"dm:{node}", kind="dm", node_id=node, now=clock.now())

        return Chat(db, memories[-1], model, clock, await db.transaction(body))

    yield make
    for memory in memories:
        await memory.stop()
