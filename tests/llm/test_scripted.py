"""The scripted server, driven by the stock openai client and by raw HTTP."""

import asyncio

import httpx2
import openai
import pytest

from meshai.llm.scripted import Reply


@pytest.fixture
async def client(server):
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0, timeout=10) as made:
        yield made


async def ask(client, text, **more):
    return await client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": text}], **more)


async def test_queued_replies_go_before_the_rule(server, client):
    server.reply("one")
    server.rule = lambda prompt: f"rule saw {prompt.last}"
    first, second = await ask(client, "a"), await ask(client, "b")
    assert [r.choices[0].message.content for r in (first, second)] == ["one", "rule saw b"]


async def test_streams_words_and_usage(server, client):
    server.reply("three little words")
    stream = await ask(client, "hi", stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "three little words"
    assert chunks[-1].usage.completion_tokens == 5


async def test_counts_what_a_prompt_cache_would_keep(server, client):
    await ask(client, "the same beginning, then this")
    second = await ask(client, "the same beginning, then that")
    assert second.usage.prompt_tokens_details.cached_tokens == server.requests[1].cached_tokens > 0
    assert server.requests[1].shared == len("user: the same beginning, then th")


async def test_oldest_messages_are_dropped_silently_when_told(server, client):
    server.n_ctx, server.overflow = 20, "truncate"
    answer = await ask(client, "x" * 60)
    assert answer.usage.prompt_tokens == 19
    messages = [{"role": "user", "content": "y" * 40}, {"role": "user", "content": "z" * 40}]
    answer = await client.chat.completions.create(model="scripted", messages=messages)
    assert answer.usage.prompt_tokens == 14


async def test_too_long_prompt_is_a_400_with_the_context(server, client):
    server.n_ctx = 10
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, "x" * 100)
    assert caught.value.body["n_ctx"] == 10


async def test_client_that_leaves_is_seen_as_cancelled(server, client):
    server.reply(Reply(hang=True))
    task = asyncio.create_task(ask(client, "hi"))
    await server.wait_for_requests(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while not server.requests[0].cancelled:
        await asyncio.sleep(0)


@pytest.mark.parametrize("reset", [False, True])
async def test_stream_can_break_in_the_middle(server, client, reset):
    server.reply(Reply("one two three", break_after=2, reset=reset))

    async def read():
        return [chunk async for chunk in await ask(client, "hi", stream=True)]

    with pytest.raises((openai.APIConnectionError, httpx2.RequestError)):
        await read()
    assert server.requests[0].cancelled


async def test_serves_context_endpoints_when_told(server):
    async with httpx2.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{server.root_url}/props")).status_code == 404
        server.serve_props(4096)
        answer = await http.get(f"{server.root_url}/props")
    assert answer.json()["default_generation_settings"]["n_ctx"] == 4096


async def test_key_stays_out_of_repr(server, client):
    await ask(client, "hi")
    assert server.requests[0].headers["authorization"] == "Bearer k"
    assert "Bearer" not in repr(server.requests[0])
