"""From a stored question to committed packets (DESIGN §3 items 4 and 5, Failures)."""

import asyncio

import pytest

from meshai.errors import ModelKeyError, ModelUnavailableError

LONG = "This sentence tells something about the mesh and its radios, one by one. " * 12


async def test_question_is_answered_and_stored(station):
    station.model.replies = ["A node is a radio."]
    await station.dm("What is a node?")
    assert station.texts()[0].startswith("A node is a radio.")
    rows = await station.db.fetch_all("SELECT role, content FROM messages ORDER BY seq")
    assert [tuple(row) for row in rows] == [("user", "What is a node?"), ("assistant", "A node is a radio.")]
    assert await station.states() == ["answered"]


async def test_first_contact_is_told_what_answers_once(station):
    await station.dm("one")
    await station.dm("two")
    assert [("AI, may be wrong" in text) for text in station.texts()] == [True, False]
    assert await station.db.fetch_value("SELECT count(*) FROM messages WHERE content LIKE '%may be wrong%'") == 0


async def test_disclosure_waits_for_an_answer_with_room(station):
    station.model.replies = ["x" * 190, "Short."]
    await station.dm("one")
    await station.dm("two")
    assert [("AI, may be wrong" in text) for text in station.texts()] == [False, True]


async def test_follow_up_sees_the_exchange_before(station):
    await station.dm("My name is Zoe.")
    await station.dm("What is my name?")
    contents = [m.content for m in station.prompt().all]
    assert "My name is Zoe." in contents
    assert "Answer 1." in contents
    assert station.prompt().last.endswith("What is my name?")


async def test_system_prompt_is_the_same_for_everybody(station):
    await station.dm("hello")
    await station.dm("hi", node="!0000b002", key=b"\x09" * 32)
    assert station.prompt(0).system == station.prompt(1).system
    assert "!0000b002" in station.prompt(1).last
    assert "!0000b002" not in station.prompt(1).system


async def test_nobody_sees_another_persons_conversation(station):
    await station.dm("My secret is NUGGET1.")
    await station.dm("What is the secret?", node="!0000b002", key=b"\x09" * 32)
    assert all("NUGGET1" not in m.content for m in station.prompt().all)


async def test_long_answer_is_cut_and_more_continues_it(station):
    station.model.replies = [LONG]
    await station.dm("Tell me everything in detail")
    parts = station.texts()
    assert len(parts) == 3
    assert all(len(part.encode()) <= 200 for part in parts)
    assert "!more" in parts[-1]
    await station.dm("!more")
    assert len(station.texts()) > 3
    assert len(station.model.requests) == 1


async def test_model_failure_is_said_in_one_packet_and_not_remembered(station):  # A12, S0-11
    station.model.error = (0, ModelUnavailableError("connection refused"))
    await station.dm("hello?")
    assert station.texts() == [ModelUnavailableError.notice]
    station.model.error = None
    await station.dm("again?")
    assert all("not reachable" not in m.content for m in station.prompt().all)
    assert [tuple(r) for r in await station.db.fetch_all("SELECT role FROM messages ORDER BY seq")] == [
        ("user",), ("notice",), ("user",), ("assistant",),
    ]  # fmt: skip


async def test_refused_key_names_the_owner_not_the_key(station):
    station.model.error = (0, ModelKeyError("401 sk-secret"))
    await station.dm("hello?")
    assert station.texts() == [ModelKeyError.notice]


async def test_second_thought_restarts_the_answer_with_both_texts(station):
    station.model.gate.clear()
    await station.dm("How far is")
    await station.dm("the summit?")
    station.model.gate.set()
    await station.quiet()
    assert len(station.texts()) == 1
    assert station.prompt().last.endswith("How far is\nthe summit?")
    assert await station.states() == ["answered", "answered"]


async def test_first_part_leaves_while_the_rest_is_written(station):
    station.model.replies = ["|".join([LONG[:260], LONG[260:520]])]
    station.model.pieces_gate = asyncio.Semaphore(1)
    await station.dm("Tell me in detail")
    assert len(station.texts()) == 1
    assert station.texts()[0].startswith("[1] ")
    station.model.pieces_gate.release()
    station.model.pieces_gate = None
    await station.quiet()
    assert [text[:5] for text in station.texts()] == ["[1] T", "[2] " + station.texts()[1][4], "[3/3]"]


async def test_model_that_breaks_in_mid_answer_closes_visibly(station):
    station.model.replies = ["|".join([LONG[:300], "never"])]
    station.model.error = (1, ModelUnavailableError("broken stream"))
    await station.dm("Tell me in detail")
    assert "[broken off; ask again]" in station.texts()[-1]
    stored = await station.db.fetch_value("SELECT content FROM messages WHERE role = 'assistant'")
    assert stored.startswith("This sentence tells")
    assert "broken off" not in stored


async def test_cut_answer_ends_at_a_sentence_and_more_asks_the_model_on(station):
    station.model.replies = ["First sentence. Second sente", "Second sentence in full."]
    station.model.truncated = True
    await station.dm("Tell me")
    assert station.texts()[0].startswith("First sentence.")
    assert "sente" not in station.texts()[0].replace("sentence", "")
    assert "!more" in station.texts()[0]
    station.model.truncated = False
    await station.dm("!more")
    assert "Second sentence in full." in station.texts()[-1]
    rows = await station.db.fetch_all("SELECT content FROM messages WHERE role = 'assistant'")
    assert [row[0] for row in rows] == ["First sentence. Second sentence in full."]


async def test_distress_is_answered_first_by_the_fixed_sentence(station):
    await station.dm("SOS we are lost")
    assert "nobody has been alerted" in station.texts()[0]
    assert len(station.texts()) == 2


async def test_thinking_tapback_when_the_model_is_slow(start_station):
    station = await start_station(reply={"thinking_after_s": 0.01})
    station.model.gate.clear()
    packet = await station.dm("hello?")
    await asyncio.sleep(0.05)
    station.model.gate.set()
    await station.quiet()
    first = station.link.sent[0]
    assert (first.text, first.is_tapback, first.reply_id) == ("👀", True, packet.packet_id)
    assert not station.link.sent[1].is_tapback


async def test_restart_in_mid_answer_loses_nothing(station):
    station.model.gate.clear()
    await station.dm("Will you remember?")
    station.model.gate = asyncio.Event()
    await station.restart()
    station.model.gate.set()
    await station.quiet()
    assert len(station.texts()) == 1
    assert await station.states() == ["answered"]


async def test_restart_in_mid_answer_takes_up_both_questions_together(station):
    """Taken up alone, each would be answered once more, and the part that went out would stay a torso."""
    long = "|".join([LONG[:260], LONG[260:520]])
    station.model.gate.clear()
    await station.dm("How far is")
    await station.dm("the summit?")
    station.model.replies = [long, long]
    station.model.pieces_gate = asyncio.Semaphore(1)
    station.model.gate.set()
    await station.quiet()
    assert [text[:4] for text in station.texts()] == ["[1] "]
    await station.dm("And back?")
    station.model.pieces_gate = None
    await station.restart()
    await station.quiet()
    assert [text[:5] for text in station.texts()[1:3]] == ["[2] " + station.texts()[1][4], "[3/3]"]
    assert station.prompt(-2).last.endswith("\n\nHow far is\nthe summit?")
    assert station.prompt(-1).last.endswith("\n\nAnd back?")
    assert await station.states() == ["answered"] * 3


async def test_reply_to_a_bot_message_quotes_it(station):
    station.model.replies = ["The red tower."]
    await station.dm("Which tower?")
    await station.dm("and this one?", reply_id=station.link.sent[0].packet_id)
    assert "replying to your message: The red tower." in station.prompt().last


async def test_answer_goes_to_the_key_that_asked(station):
    await station.dm("hello")
    assert station.link.sent[0].public_key == bytes(range(32))


async def test_hop_limit_is_two_more_than_the_question_used(station):
    await station.dm("hello", hop_start=3, hop_limit=2)
    assert station.link.sent[0].hop_limit == 3


async def test_thumb_on_an_answer_that_offers_more_is_more(station):
    station.model.replies = [LONG]
    await station.dm("Tell me everything")
    await station.dm("👍", is_tapback=True, reply_id=station.link.sent[2].packet_id)
    assert len(station.texts()) > 3
    await station.dm("👍", is_tapback=True, reply_id=station.link.sent[0].packet_id)
    await station.dm("❤️", is_tapback=True, reply_id=station.link.sent[2].packet_id)
    assert len(station.model.requests) == 1


async def test_model_down_adds_what_the_notes_say_as_notice(station):
    station.model.error = (0, ModelUnavailableError("no route"))
    await station.dm("What hop limit should I use?")
    assert station.texts()[0].startswith(ModelUnavailableError.notice + " From my notes: ")
    assert "hop limit" in station.texts()[0]
    assert len(station.texts()[0].encode()) <= 200
    assert await station.db.fetch_value("SELECT role FROM messages ORDER BY seq DESC LIMIT 1") == "notice"


async def test_a_loop_costs_eight_packets_at_most(station):
    station.model.replies = [LONG] * 10
    for _ in range(9):
        await station.dm("Hello there!")
    assert len(station.texts()) <= 8


@pytest.mark.parametrize("reply", ["", "   ", "\x00\x07", "```\n```", "**"])
async def test_answer_of_nothing_is_said(station, reply):
    station.model.replies = [reply]
    await station.dm("hello?")
    assert len(station.texts()) == 1
    assert station.texts()[0].strip()
    assert await station.states() == ["answered"]


async def test_bug_of_ours_is_said_too(station, monkeypatch, caplog):
    async def broken(ask):
        raise ZeroDivisionError

    monkeypatch.setattr(station.daemon.memory, "prompt", broken)
    await station.dm("hello?")
    assert station.texts() == ["Something went wrong inside me. My owner can see it in the log."]
    assert "ZeroDivisionError" in caplog.text
