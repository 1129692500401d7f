"""One endpoint over real HTTP."""

import asyncio
import logging

import pytest
from pydantic import SecretStr

from meshai.clock import SystemClock
from meshai.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelKeyError,
    ModelRateLimitError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from meshai.llm.base import ChatMessage, ChatRequest, Outcome
from meshai.llm.scripted import Reply

KEY = "sk-test-0123456789abcdef"


async def test_streams_text_and_reports_usage(server, make, ask, answer, calls):
    server.reply("Hello from the model")
    text, finish = await answer(make(server), ask())
    assert text == "Hello from the model"
    assert (finish.usage.prompt_tokens, finish.usage.completion_tokens, finish.truncated) == (5, 5, False)
    assert [(c.outcome, c.usage, c.requests) for c in calls] == [(Outcome.OK, finish.usage, 1)]


async def test_first_delta_comes_before_the_answer_is_complete(server, make, ask):
    server.reply(Reply("one two", hang_after=1))
    stream = make(server).stream(ask())
    assert (await anext(stream)).text == "one"
    await stream.aclose()
    while not server.requests[0].cancelled:
        await asyncio.sleep(0)


async def test_complete_gives_the_whole_answer(server, make, ask):
    server.reply("All of it.")
    assert (await make(server).complete(ask())).text == "All of it."


@pytest.mark.parametrize("plain", [{"extra_body": {"stream": False}}])
async def test_plain_answer_works_like_a_stream(server, make, ask, answer, plain):
    server.reply(Reply("plain words", reasoning="hm", finish="length"))
    text, finish = await answer(make(server, **plain), ask())
    assert (text, finish.truncated, finish.usage.completion_tokens > 0) == ("plain words", True, True)


async def test_503_then_200_answers(server, make, ask, answer, clock, calls):
    server.reply(Reply.error(503), "up again")
    assert (await answer(make(server), ask()))[0] == "up again"
    assert len(clock.slept) == 1
    assert calls[0].requests == 2


async def test_gives_up_after_two_retries(server, make, ask, answer, clock):
    server.rule = lambda prompt: Reply.error(500)
    with pytest.raises(ModelUnavailableError):
        await answer(make(server), ask())
    assert len(server.requests) == 3
    assert len(clock.slept) == 2


async def test_429_waits_as_long_as_told(server, make, ask, answer, clock):
    server.reply(Reply.rate_limit(17), "later")
    assert (await answer(make(server), ask()))[0] == "later"
    assert clock.slept == [17.0]


async def test_429_with_a_date_waits_until_then(server, make, ask, answer, clock):
    clock.time = 1_800_000_000.0
    server.reply(Reply.rate_limit("Fri, 15 Jan 2027 08:00:09 GMT"), "later")
    await answer(make(server), ask())
    assert clock.slept == [9.0]


async def test_429_beyond_the_deadline_is_told_at_once(server, make, ask, answer, clock):
    server.reply(Reply.rate_limit(600))
    with pytest.raises(ModelRateLimitError) as caught:
        await answer(make(server), ask())
    assert caught.value.retry_after_s == 600
    assert clock.slept == []


async def test_exhausted_quota_is_not_retried(server, make, ask, answer):
    server.reply(Reply.error(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(ModelRateLimitError):
        await answer(make(server), ask())
    assert len(server.requests) == 1


async def test_refused_connection_is_unavailable(server, make, ask, answer):
    model = make(server)
    await server.stop()
    with pytest.raises(ModelUnavailableError, match="no connection to http://127"):
        await answer(model, ask())


async def test_silence_before_the_first_token_times_out(server, make, ask, answer, calls):
    server.reply(Reply(hang=True))
    with pytest.raises(ModelTimeoutError, match="silent"):
        await answer(make(server, timeout_s=0.1), ask())
    assert calls[0].outcome is Outcome.TIMEOUT


async def test_keepalives_and_empty_deltas_are_not_tokens(server, make, ask, answer):
    server.reply(Reply("late", keepalives=500, tokens_per_s=100))
    with pytest.raises(ModelTimeoutError, match="silent"):
        await answer(make(server, own_clock=SystemClock(), timeout_s=0.2), ask())


async def test_slow_tokens_are_waited_for(server, make, ask, answer):
    server.reply(Reply("six words that come one by one", tokens_per_s=50))
    text, _ = await answer(make(server, own_clock=SystemClock(), timeout_s=0.1), ask())
    assert text == "six words that come one by one"


async def test_deadline_ends_a_call_that_goes_on_too_long(server, make, ask, answer):
    server.reply(Reply("one two three", hang_after=2))
    with pytest.raises(ModelTimeoutError, match="time is up"):
        await answer(make(server), ask(deadline_s=0.1))


async def test_stream_broken_after_text_is_not_started_again(server, make, ask):
    server.reply(Reply("one two three", break_after=2), "never asked")
    stream = make(server).stream(ask())
    assert [(await anext(stream)).text, (await anext(stream)).text] == ["one", " two"]
    with pytest.raises(ModelUnavailableError):
        await anext(stream)
    assert len(server.requests) == 1


async def test_stream_that_ends_without_a_finish_is_broken(server, make, ask, answer):
    server.reply(Reply("half an ans", finish=None))
    with pytest.raises(ModelUnavailableError, match="broke off"):
        await answer(make(server), ask())


async def test_broken_stream_is_asked_again_while_nobody_saw_it(server, make, ask):
    server.reply(Reply("one two three", break_after=2), "whole")
    assert (await make(server).complete(ask())).text == "whole"


async def test_garbage_is_unavailable(server, make, ask, answer):
    server.reply(Reply.garbage())
    with pytest.raises(ModelUnavailableError, match="not an answer"):
        await answer(make(server), ask())


async def test_bad_lines_in_a_stream_are_skipped(server, make, ask, answer):
    lines = b'data: {"choices": [\n\ndata: [1]\n\ndata: \xff\xfe\n\n: hello\n\n'
    good = b'data: {"choices":[{"delta":{"content":"fine \xf0\x9f\x98\x80\xff"},"finish_reason":"stop"}]}\r\n\r\n'
    server.reply(Reply(body=lines + good + b"data: [DONE]\n\n", content_type="text/event-stream"))
    assert (await answer(make(server), ask()))[0] == "fine 😀\ufffd"


@pytest.mark.parametrize("reply", [Reply(), Reply(no_choices=True), Reply("  \n ")])
async def test_nothing_to_say_is_an_empty_answer(server, make, ask, answer, reply):
    server.reply(reply)
    with pytest.raises(EmptyAnswerError) as caught:
        await answer(make(server), ask())
    assert not caught.value.only_thinking


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_fields_are_never_visible(server, make, ask, answer, field):
    server.reply(Reply("Answer", reasoning="secret plan", reasoning_field=field))
    assert (await answer(make(server), ask()))[0] == "Answer"


async def test_think_split_over_chunks_is_removed(server, make, ask, answer):
    server.reply(Reply(pieces=("<th", "ink>pl", "an</thi", "nk>\n\n", "Yes")))
    assert (await answer(make(server), ask()))[0] == "Yes"


async def test_only_thinking_is_told_apart(server, make, ask, answer, calls):
    server.reply(Reply("<think>hm"))
    with pytest.raises(EmptyAnswerError) as caught:
        await answer(make(server), ask())
    assert caught.value.only_thinking
    assert calls[0].outcome is Outcome.ONLY_THINKING


async def test_thinking_that_used_up_the_limit_gets_room_at_once(server, make, ask, answer):
    server.reply(Reply.thinking("long plan", finish="length"), "Answer")
    assert (await answer(make(server), ask(max_tokens=300)))[0] == "Answer"
    assert [r.body["max_tokens"] for r in server.requests] == [300, 2400]


async def test_reasoning_endpoint_keeps_its_room(server, make, ask, answer):
    model = make(server)
    server.reply(Reply.thinking("plan", "one"), "two")
    await answer(model, ask())
    await answer(model, ask())
    assert server.requests[1].body["max_tokens"] == 1500


async def test_room_for_thinking_is_not_room_for_text(server, make, ask, answer):
    model = make(server)
    server.reply(Reply.thinking("plan", "one"), "word " * 500)
    await answer(model, ask())
    text, finish = await answer(model, ask(max_tokens=20))
    assert len(text) < 120
    assert finish.truncated


async def test_leaked_thinking_is_learned(server, make, ask, answer):
    model = make(server)
    server.rule = lambda prompt: Reply(pieces=("I plan. ", "</think>", "Hello"))
    with pytest.raises(ModelUnavailableError, match="thinking"):
        await answer(model, ask())
    assert (await answer(model, ask()))[0] == "Hello"


async def test_token_limit_marks_the_answer_truncated(server, make, ask, answer, calls):
    server.reply(Reply("cut in the mid", finish="length"))
    assert (await answer(make(server), ask()))[1].truncated
    assert calls[0].outcome is Outcome.TRUNCATED


async def test_refused_key_needs_the_operator(server, make, ask, answer, caplog):
    caplog.set_level(logging.DEBUG)
    server.reply(Reply.unauthorized(f"Incorrect API key provided: {KEY}"))
    with pytest.raises(ModelKeyError) as caught:
        await answer(make(server, key=SecretStr(KEY)), ask())
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value) + repr(caught.value) + caplog.text
    assert caught.value.__cause__ is None


async def test_key_is_nowhere_but_in_the_header(server, make, ask, answer, caplog, calls):
    caplog.set_level(logging.DEBUG)
    model = make(server, key=SecretStr(KEY))
    await answer(model, ask())
    seen = f"{caplog.text}{calls!r}{model.status()!r}{vars(model)!r}{vars(model._seats[0].client)!r}{server.requests!r}"
    assert KEY not in seen


async def test_without_a_key_no_authorization_goes_out(server, make, ask, answer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody-else")
    await answer(make(server), ask())
    assert not {"authorization", "openai-organization", "openai-project"} & set(server.requests[0].headers)


async def test_proxy_of_the_environment_is_not_used_inside_the_house(server, make, ask, answer, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert (await answer(make(server), ask()))[0] == "OK"


@pytest.mark.parametrize(
    ("reply", "base", "said"),
    [
        (Reply.no_such_path(), "", "no /v1"),
        (Reply.no_such_path(), "/v1", "OpenAI-compatible"),
        (Reply.no_such_model("scripted"), "/v1", "does not have the model 'scripted'"),
        (Reply(status=307, headers={"Location": "/x"}, body=b""), "/v1", "redirects"),
        (Reply.error(400, "\x1b[31m%s {} bad\n\x00thing"), "/v1", r"%s {} bad thing"),
    ],
)
async def test_rejections_say_what_to_do(server, make, ask, answer, reply, base, said):
    server.reply(reply)
    with pytest.raises(ModelRequestError, match=said):
        await answer(make(server, base_url=server.root_url + base), ask())


@pytest.mark.parametrize(
    ("message", "check"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", ("max_completion_tokens", 100)),
        ("Unsupported value: 'temperature' does not support 0.7", ("temperature", None)),
        ("Unrecognized request argument supplied: stream_options", ("stream_options", None)),
        ("max_tokens is too large: 100. This model supports at most 64 completion tokens", ("max_tokens", 64)),
    ],
)
async def test_400_naming_a_parameter_is_learned(server, make, ask, answer, message, check):
    model = make(server)
    server.reply(Reply.error(400, message), "fine", "again")
    assert (await answer(model, ask()))[0] == "fine"
    await answer(model, ask())
    assert [r.body.get(check[0]) for r in server.requests[1:]] == [check[1]] * 2
    assert len(model.status()["endpoints"][0]["quirks"]) == 1


async def test_the_same_lesson_is_not_learned_twice(server, make, ask, answer):
    server.rule = lambda prompt: Reply.error(400, "temperature is not supported")
    with pytest.raises(ModelRequestError):
        await answer(make(server), ask())
    assert len(server.requests) == 2


async def test_extra_body_is_passed_on(server, make, ask, answer):
    await answer(make(server, extra_body={"chat_template_kwargs": {"enable_thinking": False}}), ask())
    assert server.requests[0].body["chat_template_kwargs"] == {"enable_thinking": False}


async def test_prompt_that_does_not_fit_names_the_context(server, make, ask, answer):
    model = make(server)
    server.n_ctx = 1000
    with pytest.raises(ContextTooLongError) as caught:
        await answer(model, ask("x" * 5000))
    assert caught.value.context_tokens == 1000
    assert await model.context_tokens() == 1000
    assert model.status()["endpoints"][0]["failures"] == 0


async def test_error_inside_a_stream_is_an_error(server, make, ask, answer):
    event = (
        b'data: {"error": {"message": "the request exceeds the available context size", "n_ctx": 512, "code": 400}}\n\n'
    )
    server.reply(Reply(body=event, content_type="text/event-stream"))
    with pytest.raises(ContextTooLongError):
        await answer(make(server), ask())


async def test_odd_text_arrives_as_it_is(server, make, answer):
    odd = "<|endoftext|> %s{} \x1b[31m '; DROP TABLE x; \ud83d"
    server.reply(Reply(echo=True, pieces=("%s{} {0} %(x)s",)))
    text, _ = await answer(make(server), ChatRequest((ChatMessage("user", odd),), 50))
    assert text == "%s{} {0} %(x)s"
    assert server.requests[0].last == odd.replace("\ud83d", "?")


async def test_cancelled_call_is_recorded_as_such(server, make, ask, calls):
    server.reply(Reply(hang=True))
    task = asyncio.create_task(make(server).complete(ask()))
    await server.wait_for_requests(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [c.outcome for c in calls] == [Outcome.CANCELLED]


async def test_failing_bookkeeper_costs_no_answer(server, make, ask, answer, caplog):
    model = make(server)
    model._seats[0].client._on_call = lambda record: 1 / 0
    assert (await answer(model, ask()))[0] == "OK"
    assert "recording a model call failed" in caplog.text


async def test_connection_is_used_again(server, make, ask, answer):
    model = make(server)
    await answer(model, ask())
    await answer(model, ask())
    assert len(server._connections) == 1
