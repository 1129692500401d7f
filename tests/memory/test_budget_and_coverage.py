"""I1 and I3: every message in the window or under exactly one summary, no prompt beyond its budget."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshai.memory.assemble import Ask, Material, Snippet, assemble
from meshai.memory.budget import plan
from meshai.memory.tokens import estimate
from meshai.storage.messages import StoredMessage

STRATEGIES = ["rolling", "tiered", "sliding", "progressive"]
TEXTS = st.one_of(
    st.text(max_size=400),
    st.sampled_from(
        ["word " * 2000, "Привет, как дела? " * 30, "你好世界" * 200, "👨‍👩‍👧‍👦" * 60, "\ud800", "", "<|endoftext|>"]
    ),
)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_every_message_covered_once(chat: Any, strategy: str) -> None:  # Z-M1, Z-M2
    one = await chat(strategy=strategy)
    for n in range(50):
        prompt = await one.exchange(f"Message {n} about Hut {n} and the way to Peak{n}", context=2048)
        assert prompt.tokens_est <= prompt.usable
        await one.memory.settle()
        assert await one.problems() == []
    assert (await one.memory.status(one.id)).archived > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_full_window_is_digested_without_a_model(chat: Any, strategy: str) -> None:
    one = await chat(strategy=strategy)
    for n in range(60):
        prompt = await one.exchange(f"Message {n}: the hut number {n} has {n + 2} beds and a stove", context=1024)
        assert prompt.window_left_out == 0
        assert await one.problems() == []
    assert one.model.requests == []
    assert (await one.memory.status(one.id)).extractive >= 1


def row(seq: int, role: str, text: str) -> StoredMessage:
    return StoredMessage(seq + 1, 1, seq, 0, role, "!a1", "Anna", text, 1e9 + seq * 4000)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    context=st.integers(1024, 9000),
    reply=st.integers(0, 3000),
    system=TEXTS,
    question=TEXTS,
    chain=st.lists(TEXTS, max_size=8),
    facts=st.lists(st.text(max_size=80), max_size=20),
    window=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), TEXTS), max_size=12),
    recalled=st.lists(TEXTS, max_size=6),
)
def test_prompt_never_exceeds_budget(
    context: int,
    reply: int,
    system: str,
    question: str,
    chain: list[str],
    facts: list[str],
    window: list[tuple[str, str]],
    recalled: list[str],
) -> None:
    budget = plan(context_tokens=context, reply_tokens=reply, factor=1.15)
    material = Material(
        chain=chain,
        window=[row(n, role, text) for n, (role, text) in enumerate(window)],
        facts=facts,
        recalled=[Snippet(900 + n, n, "Anna", 1e9, text) for n, text in enumerate(recalled)],
    )
    prompt = assemble(Ask(1, system, ("now 12:00",), question), material, budget, estimate)
    counted = 3 + sum(estimate(message.content) + 4 for message in prompt.messages)
    assert counted == prompt.tokens_est <= budget.usable
    roles = [message.role for message in prompt.messages if message.role != "system"]
    assert roles[0] == roles[-1] == "user"
    assert all(a != b for a, b in pairwise(roles))
