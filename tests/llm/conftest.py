"""A scripted server, a clock that only moves when told, and models pointed at the one with the other."""

import asyncio

import pytest

from meshai.config.model import Endpoint
from meshai.llm.base import ChatMessage, ChatRequest
from meshai.llm.client import EndpointClient
from meshai.llm.failover import FailoverModel
from meshai.llm.keys import NO_KEY
from meshai.llm.scripted import ScriptedServer
from meshai.llm.slots import Slots


class FakeClock:
    """Sleeping moves it on at once and is written down."""

    def __init__(self):
        self.time = 1_800_000_000.0
        self.slept = []

    def now(self):
        return self.time

    def monotonic(self):
        return self.time - 1_700_000_000.0

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def server():
    async with ScriptedServer() as running:
        yield running


@pytest.fixture
async def second():
    async with ScriptedServer() as running:
        yield running


@pytest.fixture
def calls():
    return []


@pytest.fixture
async def make(clock, calls):
    """``make(server, …)``: a model over these servers; endpoint settings as keywords."""
    models = []

    def build(*servers, key=NO_KEY, parallel=1, own_clock=None, **settings):
        clients = [
            EndpointClient(
                # model_copy does not validate: tests may be less patient than settings allow
                Endpoint(name=f"e{n}", base_url=s.base_url, model="scripted").model_copy(update=settings),
                clock=own_clock or clock,
                key=key,
                on_call=calls.append,
            )
            for n, s in enumerate(servers)
        ]
        models.append(FailoverModel(clients, slots=Slots(parallel), clock=own_clock or clock))
        return models[-1]

    yield build
    for model in models:
        await model.aclose()


@pytest.fixture
def ask():
    """``ask("text", …)``: a request."""

    def build(text="hi", *, max_tokens=100, **more):
        return ChatRequest((ChatMessage("user", text),), max_tokens, question=text, **more)

    return build


@pytest.fixture
def answer():
    """``await answer(model, request)``: (text, finish) of a stream."""

    async def collect(model, request):
        deltas = [delta async for delta in model.stream(request)]
        assert all(delta.finish is None for delta in deltas[:-1])
        return "".join(delta.text for delta in deltas), deltas[-1].finish

    return collect
