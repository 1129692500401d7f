"""The memory with the real client against the scripted server: what was sent, counted and cached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from meshai.clock import SystemClock
from meshai.config.model import Endpoint, Llm, Settings
from meshai.config.model import Memory as MemorySettings
from meshai.conversation import persona
from meshai.llm.base import ChatRequest, Purpose
from meshai.llm.registry import open_model
from meshai.llm.scripted import Reply, ScriptedServer
from meshai.memory.memory import Memory


def answer(prompt: Any) -> str:
    """A reply, or a summary that keeps what is worth keeping."""
    if not prompt.last.rstrip().endswith("Summary:"):
        return "ACK"
    words = [
        word for word in prompt.last.split("Messages:")[-1].split() if any(c.isdigit() or c.isupper() for c in word)
    ]
    return "They spoke of " + " ".join(word for word in words if "#" not in word)[:300] + "."


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as running:
        running.rule = answer
        yield running


@pytest.fixture
async def world(server: ScriptedServer, db: Any, kit: Any, chat: Any) -> AsyncIterator[Any]:
    endpoint = Endpoint(name="t", base_url=server.base_url, model="scripted", context_tokens=4096)
    model = open_model(Settings(llm=Llm(endpoints=[endpoint])), clock=SystemClock())
    one = await chat()
    one.memory = Memory(db, MemorySettings(), model, one.clock, boot_id="http")
    one.model = model
    yield one
    await one.memory.stop()
    await model.aclose()


async def exchange(one: Any, question: str) -> Any:
    row = await one.add("user", question, sender="!a1b2c3d4", sender_name="Anna")
    prompt = await one.ask(question, row.id, notes=(f"message {row.seq}",))
    with one.memory.answering():
        done = await one.model.complete(ChatRequest(prompt.messages, 50, conv_id=one.id, tokens_est=prompt.tokens_est))
    one.memory.learn_usage("fake", prompt.tokens_est, done.finish.usage)
    await one.add("assistant", done.text, reply_to=row.id)
    one.memory.note_exchange(one.id)
    return done.finish.usage


def small_talk(n: int) -> str:
    """Something new every time, and a question about something old every fourth."""
    first, second = (SYLLABLES[n % 12] + SYLLABLES[(n * k) % 11 + 1] + SYLLABLES[n // 12] for k in (5, 7))
    if n % 4 == 3:
        return f"What did I say about the {small_talk(n - 3).split()[-1]}"
    return f"{first.title()} came along and brought us a {second}"


SYLLABLES = ["ba", "ker", "lo", "min", "tas", "vir", "num", "pel", "gor", "sen", "dul", "hax"]


async def test_prefix_is_reused_and_calls_are_few(world: Any, server: ScriptedServer) -> None:  # I9
    world.persona = persona.system_prompt(Settings())
    sent = cached = 0
    for n in range(60):
        usage = await exchange(world, small_talk(n))
        sent, cached = sent + usage.prompt_tokens, cached + usage.cached_tokens
        await world.memory.settle()
    assert cached / sent >= 0.7
    summaries = [seen for seen in server.requests if seen.last.rstrip().endswith("Summary:")]
    assert len(summaries) <= 0.12 * 60
    assert await world.problems() == []


async def test_summary_call_is_one_message_with_its_own_limits(world: Any, server: ScriptedServer) -> None:
    for n in range(14):
        await exchange(world, f"Message {n} about Hut {n}")
    await world.memory.settle()
    body = server.requests[-1].body
    assert body["temperature"] == 0.3
    assert [message["role"] for message in body["messages"]] == ["user"]


@pytest.mark.parametrize(
    "reply",
    [Reply.error(400), Reply.unauthorized(), Reply.garbage(), Reply(text=""), Reply(echo=True), Reply(no_choices=True)],
    ids=["400", "401", "garbage", "empty", "echo", "no choices"],
)
async def test_broken_server_never_becomes_memory(world: Any, server: ScriptedServer, reply: Reply) -> None:  # I4
    for n in range(14):
        await exchange(world, f"Message {n} about Hut {n}")
    server.reply(*[reply] * 8)
    await world.memory.settle()
    text = await world.memory.summary_text(world.id)
    assert "error" not in text.lower()
    assert "Summarise" not in text
    assert await world.problems() == []


async def test_usage_of_a_server_calibrates(world: Any, server: ScriptedServer) -> None:  # S4-28
    for n in range(25):
        usage = await exchange(world, f"Message {n}: the way to Hut {n} is long and steep today")
        prompt = await world.ask("Q")
    mean = world.memory._ctx.meter._known["fake"].ratio_mean
    assert abs(mean * prompt.tokens_est - usage.prompt_tokens) / usage.prompt_tokens < 0.1
    assert Purpose.REPLY
