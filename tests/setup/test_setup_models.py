"""Asking model servers: what they offer, whether one answers, and what is wrong in words."""

import pytest
from pydantic import SecretStr

from meshai.clock import SystemClock
from meshai.config.model import Endpoint
from meshai.errors import EmptyAnswerError, ModelKeyError, ModelRequestError, ModelUnavailableError
from meshai.llm.keys import NO_KEY
from meshai.llm.scripted import Reply, ScriptedServer
from meshai.setup import models

CLOCK = SystemClock()


def root(server):
    return server.base_url.removesuffix("/v1")


def endpoint(server, model="llama3.2:3b"):
    return Endpoint(name="x", base_url=server.base_url, model=model)


async def test_models_are_listed_and_embedding_models_come_last(server):
    offered = await models.offered(server.base_url, NO_KEY, CLOCK)
    assert offered.models == ("llama3.2:3b", "qwen3:8b", "nomic-embed-text")


async def test_missing_v1_is_added(server):
    offered = await models.offered(root(server), NO_KEY, CLOCK)
    assert offered.base_url == server.base_url


async def test_server_without_list_is_taken_as_it_is():
    async with ScriptedServer() as bare:
        assert (await models.offered(bare.base_url, NO_KEY, CLOCK)).models == ()


async def test_web_server_that_is_no_model_server_is_told():
    async with ScriptedServer() as other:
        other.serve("/models", b"<html>router</html>")
        with pytest.raises(ModelRequestError, match="neither there nor below /v1"):
            await models.offered(root(other), NO_KEY, CLOCK)


@pytest.mark.parametrize(("key", "said"), [("", "wants a key"), ("sk-wrong", "refuses this key")])
async def test_refused_key_is_told_apart_from_a_missing_one(key, said):
    async with ScriptedServer() as closed:
        closed.serve("/v1/models", {"error": {"message": "no"}}, 401)
        with pytest.raises(ModelKeyError, match=said):
            await models.offered(closed.base_url, SecretStr(key), CLOCK)


async def test_starting_server_and_closed_port_are_unavailable(server):
    server.serve("/v1/models", {}, 503)
    with pytest.raises(ModelUnavailableError, match="still starting"):
        await models.offered(server.base_url, NO_KEY, CLOCK)
    await server.stop()
    with pytest.raises(ModelUnavailableError, match="no connection to http://127"):
        await models.offered(server.base_url, NO_KEY, CLOCK)


@pytest.mark.parametrize("body", [{"data": [None, {"id": 5}, {"id": "a\x1b[2J"}, {"id": ""}, {}]}, {"data": []}])
async def test_strange_entries_are_skipped(server, body):
    server.serve("/v1/models", body)
    assert (await models.offered(server.base_url, NO_KEY, CLOCK)).models == ()


async def test_only_running_servers_are_nearby(server):
    known = (("Ollama", server.base_url), ("gone", "http://127.0.0.1:9/v1"))
    assert [each.name for each in await models.nearby(CLOCK, known)] == ["Ollama"]


async def test_one_question_gives_answer_speed_and_context(server):
    server.serve_props(4096)
    server.reply(Reply("LoRa is radio over kilometres.", tokens_per_s=40))
    trial = await models.attempt(endpoint(server), NO_KEY, CLOCK)
    assert (trial.answer, trial.context_tokens) == ("LoRa is radio over kilometres.", 4096)
    assert 0 < trial.first_s < trial.total_s
    assert trial.tokens_per_s > 0


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (Reply.no_such_model("x"), ModelRequestError, "does not have the model"),
        (Reply.no_such_path(), ModelRequestError, "no /chat/completions"),
        (Reply.unauthorized(), ModelKeyError, "refuses the key"),
        (Reply(""), EmptyAnswerError, "empty"),
    ],
)
async def test_failing_question_says_why(server, reply, error, said):
    server.reply(reply)
    with pytest.raises(error, match=said):
        await models.attempt(endpoint(server), NO_KEY, CLOCK)
