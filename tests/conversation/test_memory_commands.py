"""!memory !summary !compact !facts !remember !forget !recall through the running daemon (docs/memory.md §2.6)."""

import re

import pytest
from support.inbox_world import ZOE


async def talk(station, turns):
    for number in range(turns):
        await station.dm(f"Message {number}: the antenna number {number} stands at place {number * 7}.")


async def answer(station, text):
    await station.dm(text)
    reply = station.texts()[-1]
    assert len(reply.encode()) <= 200
    return reply


async def test_memory_shows_figures(station):
    await talk(station, 3)
    reply = await answer(station, "!memory")
    assert "Memory on (tiered); 6 messages" in reply


@pytest.mark.parametrize("word", ["!memory", "!mem", "!summary_status"])  # S3-22
async def test_status_has_its_aliases(station, word):
    assert "Memory on" in await answer(station, word)


async def test_memory_off_keeps_the_data_and_survives_a_restart(station):  # S3-23
    await talk(station, 8)
    assert (await answer(station, "!summary_off")).startswith("Memory off")
    await station.restart()
    await station.dm("What about place 0?")
    assert all("place 0." not in m.content for m in station.prompt().all[:-1])
    assert await answer(station, "!memory on") == "Memory on."
    assert await station.db.fetch_value("SELECT count(*) FROM messages WHERE role = 'user' AND is_command = 0") == 9


async def test_memory_every_checks_its_number(station):
    assert await answer(station, "!memory every 20") == "I summarise every 20 turns from now on."
    for bad in ("0", "501", "x", "-1", "²"):
        assert "1 to 500" in await answer(station, f"!memory every {bad}")
    assert "every 20 turns" in await answer(station, "!memory")


async def test_compact_works_at_once_and_summary_shows_it(station):
    await talk(station, 12)
    assert (await answer(station, "!summary")).startswith("No summary yet")
    assert (await answer(station, "!compact")).startswith("Compacted")
    assert "antenna" in await answer(station, "!summary")
    assert station.model.requests[-1].purpose == "reply"


async def test_remembered_fact_stays_after_reset(station):
    assert "my camp is at the north ridge" in await answer(station, "!remember my camp is at the north ridge")
    await answer(station, "!reset")
    assert "north ridge" in await answer(station, "!facts")
    await station.dm("Where is my camp?")
    assert any("north ridge" in m.content for m in station.prompt().all)


async def test_facts_are_learned_from_what_people_say_and_forgotten_by_number(station):
    await station.dm("My name is Zoe.")
    assert "Zoe" in await answer(station, "!facts")
    assert (await answer(station, "!forget 1")).startswith("Forgotten:")
    assert "Zoe" not in await answer(station, "!facts")
    assert await answer(station, "!forget 7") == "There is no fact 7. facts lists them."


async def test_recall_works_without_a_model(station):
    await station.dm("The red key lies under the third stone.")
    calls = len(station.model.requests)
    assert "third stone" in await answer(station, "!recall red key")
    assert await answer(station, "!recall submarine") == "I find nothing like that in our talk."
    assert len(station.model.requests) == calls


async def test_forget_all_asks_back_and_leaves_no_byte(station):
    await station.dm("My secret word is NUGGETXYZ.")
    await station.dm("!remember NUGGETXYZ is the word")
    question = await answer(station, "!forget all")
    code = re.fullmatch(r'Send "!forget all (\d{4})" within two minutes to erase everything\.', question)[1]
    assert (await answer(station, "!forget all 0000")) != question
    code = re.search(r"all (\d{4})", station.texts()[-1])[1]
    assert (await answer(station, f"!forget all {code}")).startswith("Erased everything")
    await station.daemon.memory.settle()
    await station.stop()
    files = [path for path in station.path.parent.iterdir() if path.name.startswith("meshai.db")]
    assert files
    assert all(b"NUGGETXYZ" not in path.read_bytes() for path in files)
    await station.start()
    assert await station.db.fetch_value("SELECT count(*) FROM conversations WHERE node_id = ?", (ZOE,)) == 1


async def test_wrong_code_erases_nothing(station):
    await station.dm("keep me")
    await answer(station, "!forget all 1234")
    assert await station.db.fetch_value("SELECT count(*) FROM messages WHERE content = 'keep me'") == 1
