"""Answers that are sent while they are written (DESIGN §3 item 5)."""

from __future__ import annotations

import pytest

from meshai.delivery import writer as answer_writer
from meshai.delivery.outbox import Address, Answer
from meshai.delivery.parts import MORE_HINT
from meshai.storage import answers, outbound

ANNA = "!0000a001"
KEY = bytes(range(32))
LONG = " ".join(f"Sentence number {n} tells **something** about radios." for n in range(10))
PLAIN = LONG.replace("*", "")
ENDLESS = " ".join(f"Sentence number {n} tells something about radios." for n in range(40))


async def begin(station, **kwargs):
    answer = Answer(Address(ANNA, KEY), "", **{"hops_used": 1, "asked_at": station.clock.now(), **kwargs})
    return await answer_writer.begin(station.outbox, station.db, answer)


async def feed(station, writer, text):
    for word in text.split(" "):
        if writer.add(word + " "):
            await station.db.transaction(writer.commit_ready)


async def finish(station, writer, **kwargs):
    writer.close(truncated=kwargs.get("truncated", False))
    return await station.db.transaction(lambda tx: writer.finish(tx, **kwargs))


async def contents(station):
    return [p.content for p in await station.packets() if p.reason != outbound.SUPERSEDED]


async def test_first_part_leaves_before_the_answer_ends(station):
    writer = await begin(station, reply_id=9)
    await feed(station, writer, LONG[:300])
    await station.settle()
    assert [text[:4] for text in station.radio.texts] == ["[1] "]
    assert station.radio.sent[0].reply_id == 9


async def test_marks_of_a_streamed_answer_stay_truthful(station):
    writer = await begin(station)
    await feed(station, writer, LONG)
    done = await finish(station, writer)
    texts = await contents(station)
    assert [text.split(" ")[0] for text in texts] == ["[1]", "[2]", "[3/3]"]
    assert " ".join(text.split(" ", 1)[1] for text in texts) == PLAIN
    assert {p.total for p in await station.packets()} == {3}
    assert (await answers.get(station.db, done.answer_id)).text == PLAIN


async def test_short_streamed_answer_has_no_mark(station):
    writer = await begin(station)
    await feed(station, writer, PLAIN[:190])
    assert not writer.committed
    await finish(station, writer)
    assert await contents(station) == [PLAIN[:190].strip()]


async def test_text_just_over_one_packet_makes_two_marked_parts(station):
    writer = await begin(station)
    await feed(station, writer, PLAIN[:205])
    assert not writer.committed
    await finish(station, writer)
    assert [text[:5] for text in await contents(station)] == ["[1/2]", "[2/2]"]


async def test_streamed_rest_waits_for_more(station):
    writer = await begin(station)
    await feed(station, writer, ENDLESS)
    done = await finish(station, writer)
    texts = await contents(station)
    assert texts[-1].startswith("[3/3] ")
    assert texts[-1].endswith(MORE_HINT)
    assert ENDLESS.endswith(done.rest)
    assert done.rest


async def test_cut_off_answer_ends_with_a_sentence_and_the_hint(station):
    writer = await begin(station)
    await feed(station, writer, "One is done. Two is done. Three is not")
    await finish(station, writer, truncated=True)
    assert await contents(station) == ["One is done. Two is done." + MORE_HINT]
    assert await station.outbox.truncated_answer(station.db, Address(ANNA, KEY)) is not None


async def test_failure_in_the_middle_ends_with_a_note(station):
    writer = await begin(station)
    await feed(station, writer, PLAIN[:300])
    await finish(station, writer, note=answer_writer.BROKEN_OFF)
    texts = await contents(station)
    assert texts[-1].startswith("[2/2] ")
    assert texts[-1].endswith(answer_writer.BROKEN_OFF)


async def broken(station, text):
    """The program ended while the answer was being written."""
    writer = await begin(station)
    await feed(station, writer, text)
    await station.restart()
    (row,) = await answers.incomplete(station.db)
    return row, await answer_writer.resume(station.outbox, station.db, row)


async def test_answer_broken_by_a_restart_goes_on_when_it_begins_the_same(station):
    _, writer = await broken(station, LONG[:300])
    await feed(station, writer, LONG)
    await finish(station, writer)
    texts = await contents(station)
    assert [text.split(" ")[0] for text in texts] == ["[1]", "[2]", "[3/3]"]
    assert " ".join(text.split(" ", 1)[1] for text in texts) == PLAIN


@pytest.mark.parametrize("second", ["Something else entirely, and longer than before. " * 10, "Sentence"])
async def test_answer_broken_by_a_restart_is_closed_when_it_differs(station, second):
    row, writer = await broken(station, LONG[:300])
    await feed(station, writer, second)
    await finish(station, writer)
    texts = await contents(station)
    assert texts[1:] == [f"[2/2] {answer_writer.CUT_BY_RESTART}"]
    assert writer.text == row.text
    assert await answers.incomplete(station.db) == []


async def test_stopped_answer_is_what_was_sent(station):
    writer = await begin(station)
    await feed(station, writer, PLAIN[:300])
    await station.db.transaction(writer.stop)
    await station.settle()
    assert await answers.incomplete(station.db) == []
    assert [p.total for p in await station.packets()] == [1]


async def test_answer_counts_as_committed_while_its_first_part_is_stored(station):
    """Whoever is cancelled at this moment must end the answer, not forget it."""
    writer = await begin(station)
    writer.add(LONG[:300])

    async def body(tx):
        await writer.commit_ready(tx)
        assert writer.answer_id is None
        assert writer.committed

    await station.db.transaction(body)
    assert writer.answer_id is not None


async def test_parts_written_while_an_earlier_one_is_held_are_held(station):
    writer = await begin(station)
    await feed(station, writer, PLAIN[:300])
    await station.settle()
    await station.nak("PKI_SEND_FAIL_PUBLIC_KEY")
    await station.heard()
    assert len(station.radio.sent) == 1  # not complete: not ready to go
    await feed(station, writer, PLAIN[300:])
    await finish(station, writer)
    assert await station.states() == ["held"] * 3
    await station.heard()
    await station.run(3)
    assert "(re your" in station.radio.texts[-1]


async def test_line_is_added_only_into_free_space(station):
    short, full = await begin(station), await begin(station)
    await feed(station, short, "A short answer.")
    await feed(station, full, PLAIN[:190])
    short.close()
    full.close()
    assert short.append_if_free("\n(AI, may be wrong)")
    assert not full.append_if_free("\n(AI, may be wrong)")
    assert short.text.endswith("(AI, may be wrong)")


async def test_unused_reservation_is_returned(station):
    station.air = station.air.model_copy(update={"budget_percent": 5.0})
    writer = await begin(station)
    await feed(station, writer, LONG)
    assert station.governor.status()["reserved_ms"] > 0
    await finish(station, writer)
    assert station.governor.status()["reserved_ms"] == 0
