"""What the model is shown, and in which order; docs/memory.md §2.4."""

from __future__ import annotations

from typing import Any

import pytest

from meshai.memory.assemble import Ask, Material, Snippet, assemble
from meshai.memory.budget import Budget, plan
from meshai.memory.tokens import estimate
from meshai.memory.window import is_dump, pause, show, to_messages
from meshai.storage.messages import StoredMessage

PLAN = plan(context_tokens=4096, reply_tokens=200)


def row(seq: int, role: str, text: str, at: float | None = None, name: str = "Anna") -> StoredMessage:
    moment = 1.75e9 + seq if at is None else at
    return StoredMessage(seq + 1, 1, seq, 0, role, "!a1", name, text, moment)  # type: ignore[arg-type]


def ask(question: str = "And now?", system: str = "Persona.") -> Ask:
    return Ask(1, system, ("You talk to Anna", "it is noon"), question, key="dm:!a1")


def full(**more: Any) -> Material:
    values: dict[str, Any] = {
        "chain": ["Oldest summary.", "Newer summary."],
        "facts": ["callsign: DL1ABC"],
        "window": [
            row(0, "user", "Hello"),
            row(1, "assistant", "Hi"),
            row(2, "user", "Wood?"),
            row(3, "assistant", "Yes"),
        ],
        "recalled": [Snippet(90, 9, "Anna", 1.7e9, "second"), Snippet(80, 8, "Anna", 1.7e9, "first")],
    }
    return Material(**(values | more))


def test_order_on_paper() -> None:
    prompt = assemble(ask(), full(), PLAN, estimate)
    system, *window, last = prompt.messages
    assert [m.role for m in prompt.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    places = [
        system.content.index(text) for text in ("Persona.", "callsign: DL1ABC", "Oldest summary.", "Newer summary.")
    ]
    assert places == sorted(places)
    assert [m.content for m in window] == ["Hello", "Hi", "Wood?", "Yes"]
    places = [last.content.index(text) for text in ("first", "second", "You talk to Anna", "it is noon", "And now?")]
    assert places == sorted(places)


def test_clock_notes_and_recall_stand_in_the_last_message_only() -> None:
    one = assemble(ask(), full(), PLAN, estimate)
    other = assemble(Ask(1, "Persona.", ("another time",), "Other question"), full(recalled=[]), PLAN, estimate)
    assert one.messages[:-1] == other.messages[:-1]
    assert one.prefix_sha == other.prefix_sha


def test_system_is_the_same_bytes_for_everybody_up_to_the_facts() -> None:
    anna = assemble(ask(), full(), PLAN, estimate).messages[0].content
    boris = assemble(ask(), full(facts=["name: Boris"], chain=[]), PLAN, estimate).messages[0].content
    assert anna.split("Known about")[0] == boris.split("Known about")[0]


def test_unanswered_question_is_carried_into_the_last_message() -> None:
    prompt = assemble(
        ask(),
        full(window=[row(0, "user", "Hello"), row(1, "assistant", "Hi"), row(2, "user", "Lost?")]),
        PLAN,
        estimate,
    )
    assert prompt.messages[-1].content.endswith("Lost?\nAnd now?")
    assert prompt.messages[-2].role == "assistant"


def test_same_roles_are_merged_and_the_user_begins() -> None:
    shown = show(
        [row(0, "assistant", "a"), row(1, "user", "b"), row(2, "user", "c")], estimate, named=False, most_tokens=99
    )
    assert [(m.role, m.content) for m in to_messages(shown)] == [("user", "[…]"), ("assistant", "a"), ("user", "b\nc")]


def test_recall_goes_first_then_window_then_chain() -> None:
    long = [row(n, "user" if n % 2 == 0 else "assistant", f"message {n} " + "with many words " * 8) for n in range(4)]

    def left(usable: int) -> tuple[int, int, int]:
        budget = Budget(usable, usable // 4, usable, usable, usable, usable, usable)
        prompt = assemble(ask(), full(window=long), budget, estimate)
        assert prompt.tokens_est <= usable
        return len(prompt.recalled), prompt.window, prompt.chain

    assert left(500) == (2, 4, 2)
    assert left(250) == (0, 4, 2)
    assert left(170)[0] == 0
    assert left(170)[1] < 4
    assert left(170)[2] == 2


def test_facts_dropped_are_the_most_dispensable() -> None:
    budget = Budget(600, 100, 100, 40, 200, 100, 100)
    facts = [f"fact number {n} of a long list" for n in range(30)]
    prompt = assemble(ask(), full(facts=facts), budget, estimate)
    assert "fact number 29" in prompt.messages[0].content
    assert "fact number 0 " not in prompt.messages[0].content


def test_long_question_is_cut_in_the_middle() -> None:
    prompt = assemble(ask("begin " + "word " * 5000 + "finish"), full(), PLAN, estimate)
    assert "begin" in prompt.messages[-1].content
    assert prompt.messages[-1].content.endswith("finish")
    assert "[…]" in prompt.messages[-1].content


def test_long_dump_is_masked_but_not_prose() -> None:  # S2-8, S2-20
    table = "\n".join(f"| {n} | 0x{n:04x} | -{n}.5 |" for n in range(40))
    assert is_dump(table)
    assert not is_dump("Hello, how are you today? " * 40)
    assert not is_dump("今日は山小屋まで歩きました。天気はとても良かったです。" * 20)
    assert not is_dump("short 0x12 0x34")
    shown = show([row(6, "assistant", table)], estimate, named=False, most_tokens=999)
    assert shown[0].text.endswith("[archived #7]")
    assert shown[0].tokens < 60


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1.75e9, 1.75e9 + 600, ""),
        (1.75e9, 1.75e9 + 3 * 3600, "[3 h later] "),
        (1.75e9, 1.75e9 + 5 * 86400, "[5 days later] "),
        (1.75e9, 1.74e9, ""),
        (60.0, 1.75e9, ""),
    ],
)
def test_pauses_are_told_when_the_clock_can_be_believed(before: float, after: float, text: str) -> None:
    assert pause(before, after) == text


def test_channel_shows_who_speaks() -> None:
    window = [row(0, "user", "hi", name="Anna"), row(1, "user", "yo", name="B: ob\n")]
    prompt = assemble(ask(), Material(window=window, named=True), PLAN, estimate)
    assert "Anna: hi\nB ob: yo" in prompt.messages[-1].content


async def test_prefix_only_grows_between_compactions(chat: Any) -> None:  # I9
    one = await chat()
    shares: list[float] = []
    before: Any = None
    for n in range(60):
        prompt = await one.exchange(f"Message {n} about Hut {n} with some more words", notes=(f"now {n}",))
        revision = (await one.conv()).prefix_rev
        if before is not None and before[0] == revision:
            assert prompt.messages[: len(before[1]) - 1] == before[1][:-1]
        if before is not None:
            shares.append(_shared(before[1], prompt.messages))
        before = (revision, prompt.messages)
        await one.memory.settle()
    assert sum(shares) / len(shares) >= 0.7


def _shared(before: Any, now: Any) -> float:
    a, b = ("\x1e".join(f"{m.role}:{m.content}" for m in messages) for messages in (before, now))
    common = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return common / len(b)


async def test_memory_off_shows_the_last_pairs_only(chat: Any) -> None:
    one = await chat(enabled=False)
    await one.talk(10)
    prompt = await one.ask("Q")
    assert (prompt.window, prompt.chain, prompt.facts) == (8, 0, 0)


async def test_stateless_question_has_no_history(chat: Any) -> None:
    one = await chat()
    await one.talk(3)
    prompt = await one.memory.prompt(Ask(None, "Persona.", (), "Q"))
    assert [m.content for m in prompt.messages] == ["Persona.", "Q"]


async def test_question_rows_are_not_in_the_window(chat: Any) -> None:
    one = await chat()
    first = await one.add("user", "first thought")
    second = await one.add("user", "second thought")
    prompt = await one.ask("first thought\nsecond thought", first.id, second.id)
    assert prompt.window == 0
    assert prompt.messages[-1].content.count("first thought") == 1


async def test_two_people_never_see_each_other(chat: Any) -> None:  # I11, S4-31
    anna, boris = await chat(), await chat(node="!b0b0b0b0")
    await anna.talk(20, text="ANNA{n} hides the key at Hut {n}")
    await boris.talk(20, text="BORIS{n} sits at Hut {n}")
    text = str((await boris.ask("Where is the key hidden? What was ANNA3?")).messages)
    assert "ANNA" not in text.replace("What was ANNA3", "")


async def test_evicted_message_comes_back_for_a_direct_question(chat: Any) -> None:
    one = await chat()
    await one.exchange("The winter room key of Hut ZX77 hangs behind the woodpile")
    await one.talk(30, text="Small talk number {n} about weather")
    text = (await one.ask("Where does the winter room key of Hut ZX77 hang?", context=2048)).messages[-1].content
    assert "behind the woodpile" in text
    assert "Earlier messages that may matter" in text


@pytest.mark.parametrize("shares", [{"window": 20}, {"window": 60, "recall": 5}])
async def test_shares_change_the_budget(chat: Any, shares: dict[str, int]) -> None:
    one = await chat(tuning={"shares": shares})
    budget = one.memory._ctx.meter.budget("fake", context_tokens=4096, reply_tokens=200)
    assert budget.window == budget.usable * shares["window"] // 100


async def test_context_budget_caps_the_prompt(chat: Any) -> None:
    one = await chat(context_budget=700)
    prompt = await one.ask("word " * 3000, context=100_000)
    assert prompt.usable <= 700
