"""What model servers offer, and whether one answers. Asks over HTTP; decides nothing."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import SecretStr

from meshai.clock import Clock
from meshai.config.model import Endpoint
from meshai.errors import EmptyAnswerError, ModelError, ModelKeyError, ModelRequestError, ModelUnavailableError
from meshai.llm.base import ChatMessage, ChatRequest, Finish, Purpose
from meshai.llm.client import EndpointClient, Terms
from meshai.llm.keys import NO_KEY
from meshai.llm.places import shown
from meshai.llm.wire import Wire, WireError
from meshai.setup.answers import with_v1

KNOWN = (
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
    ("vLLM", "http://127.0.0.1:8000/v1"),
)
"""Where local servers listen unless told otherwise."""
QUESTION = "What is LoRa? Answer in one short sentence."
LIST_TIMEOUT_S = 8.0
TRIAL_S = 180.0  # a Pi may have to load the model from its card first
MAX_NAMES = 500


@dataclass(frozen=True, slots=True)
class Offered:
    """A server that answers, and the models it lists; () when it keeps no list."""

    base_url: str
    models: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One question and its answer."""

    answer: str
    first_s: float
    total_s: float
    tokens_per_s: float  # 0.0: too short to tell
    context_tokens: int


async def nearby(clock: Clock, known: tuple[tuple[str, str], ...] = KNOWN) -> list[Offered]:
    """The servers that run on this computer."""

    async def look(name: str, url: str) -> Offered | None:
        try:
            found = await offered(url, NO_KEY, clock, timeout_s=2.0)
        except ModelError:
            return None
        return Offered(found.base_url, found.models, name) if found.models else None

    found = await asyncio.gather(*(look(name, url) for name, url in known))
    return [server for server in found if server is not None]


async def offered(url: str, key: SecretStr, clock: Clock, *, timeout_s: float = LIST_TIMEOUT_S) -> Offered:
    """The models below ``url``, or below ``url``/v1 when that is what the server wants.

    Raises ModelKeyError when it wants a key, another ModelError when there is no OpenAI-compatible server.
    """
    longer = with_v1(url)
    if longer is not None:  # a bare host: nearly every server wants /v1, and some show a web page without it
        found = await _list(longer, key, clock, timeout_s)
        if found is not None:
            return Offered(longer, found)
    found = await _list(url, key, clock, timeout_s)
    if found is not None:
        return Offered(url, found)
    if longer is None:
        return Offered(url, ())  # the question that follows will tell
    raise ModelRequestError(
        f"something answers at {shown(url)}, but neither there nor below /v1 is an OpenAI-compatible server"
    )


async def attempt(endpoint: Endpoint, key: SecretStr, clock: Clock) -> Trial:
    """Ask one question as the bot would. Raises ModelError that says what to do."""
    client = EndpointClient(endpoint, clock=clock, key=key)
    request = ChatRequest((ChatMessage("user", QUESTION),), max_tokens=120, purpose=Purpose.PROBE)
    texts: list[str] = []
    finish: Finish | None = None
    try:
        async with aclosing(client.stream(request, Terms(clock.monotonic() + TRIAL_S, patient=False))) as deltas:
            async for delta in deltas:
                texts.append(delta.text)
                finish = delta.finish or finish
        answer = " ".join("".join(texts).split())
        if finish is None or not answer:
            raise EmptyAnswerError
        return _trial(answer, finish, await client.context_tokens())
    finally:
        await client.aclose()


def _trial(answer: str, finish: Finish, context_tokens: int) -> Trial:
    first_s, total_s = finish.first_token_ms / 1000, finish.total_ms / 1000
    tokens, writing_s = finish.usage.completion_tokens, total_s - first_s
    speed = tokens / writing_s if tokens > 1 and writing_s >= 0.05 else 0.0
    return Trial(answer, first_s, total_s, speed, context_tokens)


async def _list(url: str, key: SecretStr, clock: Clock, timeout_s: float) -> tuple[str, ...] | None:
    """The names a server lists; None when there is no list at this address."""
    wire = Wire(Endpoint(name="server", base_url=url, model="-"), key, clock)
    try:
        status, body = await wire.get(f"{url}/models", timeout_s)
    except WireError as error:
        raise error.error from None
    finally:
        await wire.aclose()
    if status in {401, 402, 403}:
        asked = "the server refuses this key" if key.get_secret_value() else "the server wants a key"
        raise ModelKeyError(f"{asked} ({status})")
    if status >= 500:
        raise ModelUnavailableError(f"the server at {shown(url)} fails ({status}); is it still starting?")
    return _names(body) if status == 200 else None


def _names(body: object) -> tuple[str, ...] | None:
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return None
    names = [entry.get("id") for entry in entries[:MAX_NAMES] if isinstance(entry, dict)]
    usable = {name for name in names if isinstance(name, str) and name and name.isprintable()}
    # Embedding models answer nothing: last.
    return tuple(sorted(usable, key=lambda name: ("embed" in name.lower(), name.lower())))
