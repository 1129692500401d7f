"""The scenarios of the progressive design (S4-24 to S4-31) that no other test plays."""

from __future__ import annotations

import asyncio
from typing import Any

from meshai.memory.memory import Ask
from meshai.storage import messages, summaries

LONG = "Message {n}: " + "Hut {n} has a stove and a view over the valley. " * 8


async def big_chat(chat: Any) -> Any:
    one = await chat(strategy="progressive", context_budget=12_000)
    one.model.context = 16_000
    return one


async def talk(one: Any, count: int) -> None:
    for n in range(count):
        await one.exchange(LONG.format(n=n), LONG.format(n=n + 500), context=16_000)
        await one.memory.settle()


async def test_s4_25_first_summary(chat: Any) -> None:
    one = await big_chat(chat)
    await talk(one, 14)
    chain = await summaries.chain(one.db, one.id, 0)
    assert [node.version for node in chain] == [1]
    assert "Write 100-150 words" in one.model.requests[0].messages[0].content
    prompt = await one.ask("Q", context=16_000)
    assert prompt.window == (await one.memory.status(one.id)).since_last
    assert prompt.tokens_est < 3000 * 1.2


async def test_s4_26_second_summary_is_longer(chat: Any) -> None:
    one = await big_chat(chat)
    await talk(one, 14)
    first = len(one.model.requests)
    await talk(one, 5)
    second = one.model.requests[first].messages[0].content
    assert "Write 200-250 words" in second
    assert "Previous summary:" in second
    assert len(await summaries.chain(one.db, one.id, 0)) == 1


async def test_s4_29_answers_never_wait_for_a_summary(chat: Any) -> None:
    one = await big_chat(chat)
    await talk(one, 14)
    one.model.gate = asyncio.Event()
    await one.exchange(LONG.format(n=1), LONG.format(n=2), context=16_000)
    work = asyncio.ensure_future(one.memory.settle())
    await asyncio.sleep(0)
    prompt = await one.memory.prompt(Ask(one.id, "P", (), "still there?", (), 200, 16_000, "fake"))
    assert prompt.messages[-1].content.endswith("still there?")
    one.model.gate.set()
    await work


async def test_s4_30_archive_shows_everything(chat: Any) -> None:
    one = await big_chat(chat)
    await talk(one, 20)
    rows = await messages.page(one.db, one.id, limit=1000)
    assert len(rows) == 40
    assert [row.seq for row in rows] == list(range(40))
    assert len(await messages.page(one.db, one.id, before_seq=10, limit=4)) == 4
