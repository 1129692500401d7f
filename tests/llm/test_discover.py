"""Context length from the servers that say it."""

import pytest

from meshai.llm.scripted import Reply


def source(model):
    return model.status()["endpoints"][0]["context_source"]


SERVERS = {
    "/props": lambda s: s.serve_props(6144),
    "/v1/models": lambda s: s.serve_models(max_model_len=6144),
    "/api/v0/models": lambda s: s.serve_lm_studio(6144),
    "/api/ps": lambda s: s.serve_ollama(6144),
}


@pytest.mark.parametrize("path", SERVERS)
async def test_asks_every_kind_of_server(server, make, path):
    SERVERS[path](server)
    model = make(server)
    assert await model.context_tokens() == 6144
    assert source(model) == path


async def test_configuration_comes_first(server, make):
    server.serve_props(6144)
    model = make(server, context_tokens=3000)
    assert await model.context_tokens() == 3000
    assert (source(model), server.others) == ("configuration", [])


async def test_last_resort_is_2048_and_says_so(server, make):
    model = make(server)
    assert await model.context_tokens() == 2048
    assert source(model) == "the server does not say"


async def test_dead_server_costs_no_exception(server, make):
    model = make(server)
    await server.stop()
    assert await model.context_tokens() == 2048


async def test_answer_is_remembered(server, make):
    server.serve_props(4096)
    model = make(server)
    await model.context_tokens()
    asked = len(server.others)
    await model.context_tokens()
    assert len(server.others) == asked


async def test_asked_again_after_a_failure(server, make, ask, answer):
    server.serve_props(4096)
    model = make(server)
    await model.context_tokens()
    server.serve_props(8192)
    server.reply(Reply.error(501, "restarting"))
    with pytest.raises(Exception, match="restarting"):
        await answer(model, ask())
    assert await model.context_tokens() == 8192


async def test_ollama_is_asked_again_once_the_model_is_loaded(server, make, ask, answer):
    model = make(server)
    assert await model.context_tokens() == 2048
    await answer(model, ask())
    server.serve_ollama(4096)
    assert await model.context_tokens() == 4096


async def test_what_a_model_could_do_does_not_count(server, make):
    """LM Studio and llama.cpp list the trained length beside the loaded one."""
    entry = {"id": "scripted", "state": "not-loaded", "max_context_length": 131072, "meta": {"n_ctx_train": 131072}}
    server.serve("/v1/models", {"data": [entry]})
    server.serve("/api/v0/models", {"data": [entry]})
    assert await make(server).context_tokens() == 2048


@pytest.mark.parametrize(
    "body", [b"<html>", [], {"data": 3}, {"data": [None, {"id": "scripted", "max_model_len": "x"}]}]
)
async def test_nonsense_is_no_answer(server, make, body):
    for path in ("/props", "/v1/models", "/api/ps", "/api/v0/models"):
        server.serve(path, body)
    assert await make(server).context_tokens() == 2048
