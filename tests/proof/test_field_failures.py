"""Failures of other bots (docs/field.md §2a, §2b, A.2) that no room's own tests cover, and that none is left out."""

import re
import stat
from pathlib import Path

import pytest
from support.inbox_world import ZOE
from support.station import Station

from meshai.commands.registry import COMMANDS
from meshai.config.model import Settings

BOB = "!0000b0b0"
TESTS = Path(__file__).parent.parent
NOT_APPLICABLE = {
    "A15": "no command sends anything outside the mesh; see test_no_command_reaches_beyond_mesh_and_memory",
}


@pytest.fixture
async def start(tmp_path):
    """``await start(memory={...})``: a running station."""
    stations = []

    async def make(**sections):
        stations.append(Station(tmp_path / f"m{len(stations)}.db", **sections))
        await stations[-1].start()
        return stations[-1]

    yield make
    for station in stations:
        await station.stop()


async def test_family_emoji_breaks_nothing_and_bans_nobody(start):
    """M2, M3: U+200D, U+00AD and U+200B are text like any other, however often they come."""
    station = await start()
    for number, mark in enumerate("\u200d\u00ad\u200b👨‍👩‍👧\u200d"):
        await station.dm(f"Good morning 👨‍👩‍👧 all{mark} {number}")
    await station.dm("I am new here", node=BOB, key=b"\x02" * 32)
    assert len(station.texts(ZOE)) == len(station.model.requests) - 1
    assert len(station.texts(BOB)) == 1
    assert await station.db.fetch_value("SELECT count(*) FROM blocks") == 0


async def test_second_prompt_knows_the_first(start):
    """M4, A4: "My name is Zoe" – "What is my name?"."""
    station = await start()
    await station.dm("My name is Zoe")
    await station.dm("What is my name?")
    assert any("My name is Zoe" in message.content for message in station.model.requests[1].messages)


async def test_thinking_model_keeps_nobody_else_waiting(start):
    """M5, A5: the receive path neither asks nor sleeps; commands answer while the model thinks."""
    station = await start()
    station.model.gate.clear()
    await station.dm("Think for long.")
    await station.dm("!ping", node=BOB, key=b"\x02" * 32)
    assert len(station.texts(BOB)) == 1
    assert station.texts(ZOE) == []
    station.model.gate.set()
    await station.quiet()
    assert len(station.texts(ZOE)) == 1


async def test_exception_in_an_answer_locks_nobody_out(start):
    """M8: whatever ends an answer ends "one in flight" with it."""
    station = await start()
    station.model.error = (0, IndexError("list index out of range"))
    await station.dm("Hello?")
    station.model.error = None
    await station.dm("And now?")
    assert station.texts(ZOE)[-1].startswith("Answer 2.")


async def test_model_that_ignores_its_limit_fills_three_packets(start):
    """M9: the limit is enforced where packets are made."""
    station = await start()
    station.model.replies.append("One of five hundred words. " * 100)
    await station.dm("Tell me everything")
    assert len(station.texts(ZOE)) == 3
    assert all(len(text.encode()) <= 200 for text in station.texts(ZOE))


async def test_every_part_asks_for_its_receipt(start):
    """M11: lost parts are noticed."""
    station = await start()
    station.model.replies.append("A sentence of some length, to fill parts. " * 12)
    await station.dm("Tell me more")
    assert all(request.want_ack for request in station.link.sent)
    states = await station.db.fetch_all("SELECT state FROM outbound")
    assert [row[0] for row in states] == ["delivered"] * 3


async def test_nothing_is_repeated_or_lost_by_a_restart(start):
    """M16: greetings, limits and the conversation are in the database, not in memory."""
    station = await start(limits={"per_node_per_hour": 2})
    await station.dm("My camp is at the ridge")
    await station.restart()
    await station.dm("Where is my camp?")
    await station.restart()
    await station.dm("And mine?")
    assert sum("!help" in text for text in station.texts(ZOE)) == 1
    assert any("ridge" in message.content for message in station.model.requests[1].messages)
    assert len(station.model.requests) == 2


async def test_white_space_is_silence(start):
    """M15: "   " raised an exception elsewhere."""
    station = await start()
    for text in ("", "   ", "\n\t", "\u3000"):
        await station.dm(text)
    assert station.model.requests == []
    assert station.texts() == []


async def test_dm_on_a_secondary_channel_is_answered_as_pki_dm(start):
    """A17: elsewhere the answer goes out on channel 0 with channel 0's key."""
    station = await start()
    await station.dm("hello", channel_index=3)
    request = station.link.sent[0]
    assert (request.channel_index, request.public_key is not None) == (0, True)


async def test_sender_the_node_does_not_know_is_answered(start):
    """A11: only the number is used; the library's id is missing for a new node."""
    station = await start()
    await station.dm("I am nobody's peer", node="!7fffffff", key=b"\x03" * 32)
    assert len(station.texts("!7fffffff")) == 1


async def test_control_plane_is_a_private_file(build):
    """A14: no port is opened unless somebody wants the page, and that one asks for a token off loopback."""
    assert Settings().web.enabled is False
    with pytest.raises(ValueError, match="token"):
        Settings.model_validate({"web": {"enabled": True, "host": "0.0.0.0"}})
    world = await build()
    await world.control("status")
    sockets = [path for path in world.path.iterdir() if path.is_socket()]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o117 for path in sockets] == [0]


def test_no_command_reaches_beyond_mesh_and_memory():
    pinned = (
        "help ping status about whoami reset more again stop memory summary compact facts remember forget recall admin"
    )
    assert {command.name for command in COMMANDS} == set(pinned.split())


# -- the original's memory, as far as the rooms' own tests do not cite it -------------------------------------------


async def test_summary_is_in_the_prompt_after_a_restart(start):
    """Z-M6: it was written every turn and never read."""
    station = await start(memory={"compact_every": 1, "window_pairs": 1})
    for number in range(6):
        await station.dm(f"Landmark {number} is a red barn")
    await station.dm("!compact")
    assert await station.db.fetch_value("SELECT count(*) FROM summaries") >= 1
    await station.restart()
    await station.dm("What were the landmarks?")
    messages = station.model.requests[-1].messages
    shown = " ".join(message.content for message in messages)
    assert all(f"Landmark {number}" in shown for number in range(6)), "in the summary or in the window"
    assert len(messages) < 13


async def test_a_night_of_silence_is_no_amnesia(start):
    """Z-M7: after 24 hours of silence name and allergies were gone."""
    station = await start()
    await station.dm("My name is Zoe and I am allergic to nuts")
    await station.db.transaction(lambda tx: tx.execute("UPDATE messages SET created_at = created_at - 100000"))
    await station.restart()
    await station.dm("What may I not eat?")
    assert any("allergic to nuts" in message.content for message in station.model.requests[-1].messages)


async def test_two_questions_ten_milliseconds_apart_are_both_answered_once(start):
    """Z-M8: the first was never answered, the second twice."""
    station = await start()
    station.model.gate.clear()
    await station.dm("What is a relay?")
    await station.dm("And a router?")
    station.model.gate.set()
    await station.quiet()
    assert await station.states() == ["answered", "answered"]
    assert len(station.texts()) == 1
    assert "What is a relay?" in station.prompt().last
    assert "And a router?" in station.prompt().last


async def test_memory_switched_off_is_not_mentioned_to_the_model(start):
    """Z-M10: "Previous conversation summary: No previous conversation."."""
    station = await start(memory={"enabled": False})
    await station.dm("Hello")
    await station.dm("Hello again")
    shown = " ".join(message.content for message in station.model.requests[-1].messages).lower()
    assert "summary" not in shown
    assert "previous conversation" not in shown


# -- nothing left out ---------------------------------------------------------------------------------------------


def failures():
    """Every id the paper defines: M1 to M16, A1 to A17, and the original's."""
    return [f"M{n}" for n in range(1, 17)] + [f"A{n}" for n in range(1, 18)] + [f"Z-M{n}" for n in range(1, 11)]


def cited_by_tests():
    """Ids in test files, this one included, apart from this file's lists and the tests of the papers."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        if path.parent.name != "docs" or path.name == "test_settings_are_read.py":
            text = path.read_text(encoding="utf-8").split("# -- nothing left out")[0]
            text = re.sub(r"NOT_APPLICABLE = \{.*?\n\}", "", text, flags=re.DOTALL)
            found |= set(re.findall(r"(?<![\w!.-])(Z-M\d{1,2}|[MA]\d{1,2})(?![\w-]|\.\w)", text))
    return found


def test_every_failure_of_the_paper_has_its_regression_test():
    cited = cited_by_tests()
    assert [name for name in failures() if name not in cited and name not in NOT_APPLICABLE] == []
    assert [name for name in NOT_APPLICABLE if name in cited] == [], "tested after all"
