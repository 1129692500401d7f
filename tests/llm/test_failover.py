"""Several endpoints, rests, slots, deadlines; over real HTTP with a clock that moves when told."""

import asyncio

import pytest

from meshai.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelKeyError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
    PreemptedError,
)
from meshai.llm.base import Outcome, Purpose
from meshai.llm.scripted import Reply
from meshai.llm.slots import Slots


@pytest.fixture
def resting(clock):
    """``resting(model)``: seconds each endpoint still rests."""
    return lambda model: [e["rest_s"] for e in model.status()["endpoints"]]


FAILURES = {
    "key": Reply.unauthorized(),
    "rate limit": Reply.rate_limit(90),
    "server error": Reply.error(500),
    "no such model": Reply.no_such_model("scripted"),
    "garbage": Reply.garbage(),
    "silence": Reply(hang=True),
    "broken before text": Reply("x", break_after=0),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_next_endpoint_answers_when_one_fails(server, second, make, ask, answer, failure, resting):
    server.rule = lambda prompt: FAILURES[failure]
    second.reply("from the second")
    model = make(server, second, timeout_s=0.1)
    text, finish = await answer(model, ask())
    assert (text, finish.endpoint) == ("from the second", "e1")
    assert resting(model)[0] >= 57
    assert resting(model)[1] == 0


async def test_failed_endpoint_is_left_alone_for_a_minute(server, second, make, ask, answer, clock):
    model = make(server, second)
    server.reply(Reply.unauthorized())
    await answer(model, ask())
    clock.time += 59
    await answer(model, ask())
    assert len(server.requests) == 1
    clock.time += 2
    assert (await answer(model, ask()))[1].endpoint == "e0"


async def test_rest_doubles_up_to_ten_minutes(server, second, make, ask, answer, clock, resting):
    model = make(server, second)
    server.rule = lambda prompt: Reply.unauthorized()
    rests = []
    for _ in range(6):
        await answer(model, ask())
        rests.append(resting(model)[0])
        clock.time += rests[-1] + 1
    assert rests == [60, 120, 240, 480, 600, 600]


async def test_success_ends_the_count_of_failures(server, second, make, ask, answer, clock, resting):
    model = make(server, second)
    for reply in (Reply.unauthorized(), "fine", Reply.unauthorized()):
        server.reply(reply)
        await answer(model, ask())
        clock.time += 61
    clock.time -= 61
    assert resting(model)[0] == 60


async def test_resting_endpoint_is_asked_when_no_other_is_left(server, second, make, ask, answer):
    model = make(server, second)
    server.reply(Reply.unauthorized(), "back")
    second.reply("one", Reply.unauthorized())
    await answer(model, ask())
    assert (await answer(model, ask()))[0] == "back"


async def test_single_endpoint_is_asked_every_time(server, make, ask, answer):
    model = make(server)
    server.reply(Reply.unauthorized(), "fine")
    with pytest.raises(ModelKeyError):
        await answer(model, ask())
    assert (await answer(model, ask()))[0] == "fine"


async def test_last_error_is_told_when_all_fail(server, second, make, ask, answer, calls):
    server.reply(Reply.unauthorized())
    second.reply(Reply.no_such_model("scripted"))
    with pytest.raises(ModelRequestError):
        await answer(make(server, second), ask())
    assert [(c.endpoint, c.outcome) for c in calls] == [("e0", Outcome.KEY), ("e1", Outcome.REQUEST)]


async def test_text_already_given_out_forbids_failover(server, second, make, ask, resting):
    server.reply(Reply("one two three", break_after=2))
    model = make(server, second)
    stream = model.stream(ask())
    assert (await anext(stream)).text == "one"
    await anext(stream)
    with pytest.raises(ModelUnavailableError):
        await anext(stream)
    assert second.requests == []
    assert resting(model)[0] == 60


@pytest.mark.parametrize(("reply", "error"), [(Reply(), EmptyAnswerError), (Reply.too_long(512), ContextTooLongError)])
async def test_empty_and_too_long_are_not_the_endpoints_fault(server, second, make, ask, answer, reply, error, resting):
    server.reply(reply)
    model = make(server, second)
    with pytest.raises(error):
        await answer(model, ask())
    assert second.requests == []
    assert resting(model) == [0, 0]


async def test_rejected_content_tries_the_next_without_a_rest(server, second, make, ask, answer, resting):
    server.reply(Reply.error(400, "content policy"))
    model = make(server, second)
    assert (await answer(model, ask()))[1].endpoint == "e1"
    assert resting(model) == [0, 0]


async def test_long_waits_are_for_the_last_endpoint_only(server, second, make, ask, answer, clock):
    server.reply(Reply.rate_limit(17))
    second.reply(Reply.rate_limit(17), "patience")
    assert (await answer(make(server, second), ask()))[0] == "patience"
    assert clock.slept == [17.0]


async def test_deadline_holds_for_all_endpoints_together(server, second, make, ask, answer, clock):
    def too_late(prompt):
        clock.time += 181
        return Reply.error(500)

    server.rule = too_late
    with pytest.raises(ModelUnavailableError):
        await answer(make(server, second), ask())
    assert len(server.requests) == 1
    assert second.requests == []


async def test_replies_go_before_background_work(server, make, ask, answer):
    gate = asyncio.Event()
    server.reply(Reply("first", wait=gate))
    model = make(server)
    tasks = [asyncio.create_task(answer(model, ask("first")))]
    await server.wait_for_requests(1)
    for purpose in (Purpose.MERGE, Purpose.SUMMARIZE):
        tasks.append(asyncio.create_task(model.complete(ask(purpose, purpose=purpose))))
    tasks.append(asyncio.create_task(answer(model, ask("second"))))
    await asyncio.sleep(0)
    assert model.status()["waiting"] == 3
    gate.set()
    await asyncio.gather(*tasks)
    assert [r.last for r in server.requests] == ["first", "second", "summarize", "merge"]


async def test_waiting_reply_stops_background_work(server, make, ask, answer, calls):
    server.reply(Reply(hang=True), "reply")
    model = make(server)
    background = asyncio.create_task(model.complete(ask(purpose=Purpose.SUMMARIZE)))
    await server.wait_for_requests(1)
    assert (await answer(model, ask()))[0] == "reply"
    with pytest.raises(PreemptedError):
        await background
    assert [c.outcome for c in calls] == [Outcome.PREEMPTED, Outcome.OK]
    assert server.requests[0].cancelled


async def test_background_work_goes_on_while_a_slot_is_free(server, make, ask, answer):
    gate = asyncio.Event()
    server.reply(Reply("summary", wait=gate), "reply")
    model = make(server, parallel=2)
    background = asyncio.create_task(model.complete(ask(purpose=Purpose.SUMMARIZE)))
    await server.wait_for_requests(1)
    assert (await answer(model, ask()))[0] == "reply"
    gate.set()
    assert (await background).text == "summary"


async def test_replies_do_not_stop_each_other(server, make, ask, answer):
    gate = asyncio.Event()
    server.reply(Reply("one", wait=gate), "two")
    model = make(server)
    first = asyncio.create_task(model.complete(ask()))
    await server.wait_for_requests(1)
    second = asyncio.create_task(answer(model, ask()))
    await asyncio.sleep(0)
    gate.set()
    assert [(await first).text, (await second)[0]] == ["one", "two"]


async def test_slot_is_free_when_the_caller_gets_the_end(server, make, ask):
    model = make(server)
    async for delta in model.stream(ask()):
        if delta.finish is not None:
            break
    assert model.status()["busy"] == 0


async def test_abandoned_stream_frees_its_slot(server, make, ask, answer):
    server.reply(Reply("one two", hang_after=1), "next")
    model = make(server)
    stream = model.stream(ask())
    await anext(stream)
    await stream.aclose()
    assert (await answer(model, ask()))[0] == "next"


async def test_waiting_for_a_slot_ends_with_the_deadline():
    slots = Slots(1)
    async with slots.hold(Purpose.REPLY):
        with pytest.raises(ModelTimeoutError):
            async with slots.hold(Purpose.REPLY, 0.01):
                pass
    assert (slots.busy, slots.waiting) == (0, 0)


async def test_cancelled_waiter_loses_no_slot():
    slots = Slots(1)

    async def take():
        async with slots.hold(Purpose.REPLY):
            pass

    async with slots.hold(Purpose.REPLY):
        waiter = asyncio.create_task(take())
        await asyncio.sleep(0)
    waiter.cancel()  # its slot was handed over in the same moment
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert slots.busy == 0


async def test_status_is_json_and_names_endpoints(server, make, ask, answer):
    import json

    model = make(server)
    await answer(model, ask())
    entry = json.loads(json.dumps(model.status()))["endpoints"][0]
    assert (entry["name"], entry["state"], entry["calls"], entry["prompt_tokens"]) == ("e0", "ready", 1, 5)
    assert (model.label, model.is_offline, model.leaves_house) == ("scripted @ e0", False, False)
