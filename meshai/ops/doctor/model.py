"""The language model: reachable, accepting the key, with how much context, how fast; and the token vocabulary."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

from pydantic import SecretStr

from meshai.clock import SystemClock
from meshai.config.model import Endpoint
from meshai.errors import EmptyAnswerError, MeshAIError, ModelError, ModelKeyError, ModelRateLimitError
from meshai.llm.base import ChatMessage, ChatRequest, Purpose
from meshai.llm.places import shown
from meshai.ops.doctor.base import Check, Context, fail, ok, skip, warn
from meshai.ops.paths import SERVICE_CONFIG

DEADLINE_S = 60.0
"""A model that has to be loaded from a card first."""
SLOW_S = 30.0
SMALL_CONTEXT = 2048
QUESTION = "Reply with the one word: ready"


async def check_models(ctx: Context) -> list[Check]:
    """Each endpoint is asked for one word; a failure counts only when no other endpoint answers."""
    endpoints = ctx.settings.llm.endpoints
    if ctx.loaded is None:
        return [skip("model", "needs a configuration without mistakes")]
    if not endpoints:
        return [ok("model", "none configured: answers come from the built-in texts")]
    try:
        keys = _keys(ctx)
    except (MeshAIError, OSError) as error:
        return [skip("model", f"the key cannot be read: {error}", "sudo meshai doctor")]
    checks = [await ask_endpoint(endpoint, key) for endpoint, key in zip(endpoints, keys, strict=True)]
    if all(check.status == "fail" for check in checks):
        return checks
    return [Check(check.name, "warn", check.text, check.fix) if check.status == "fail" else check for check in checks]


async def ask_endpoint(endpoint: Endpoint, key: SecretStr, *, deadline_s: float = DEADLINE_S) -> Check:
    """One word from one endpoint: how long it took, how much context it has."""
    from meshai.llm.client import EndpointClient, Terms

    name = f"model {endpoint.name}"
    clock = SystemClock()
    client = EndpointClient(endpoint, clock=clock, key=key)
    request = ChatRequest(
        (ChatMessage("user", QUESTION),), max_tokens=16, temperature=0.0, purpose=Purpose.PROBE, deadline_s=deadline_s
    )
    began = time.monotonic()
    words = ""
    try:
        terms = Terms(clock.monotonic() + deadline_s, whole=True)
        async with aclosing(client.stream(request, terms)) as deltas:
            async for delta in deltas:
                words = delta.text or words
        took_s = time.monotonic() - began
        context = await client.context_tokens()
        source = str(client.status()["context_source"])
    except ModelError as error:
        return _trouble(name, endpoint, error)
    finally:
        await client.aclose()
    text = f'{endpoint.model} says "{_short(words)}" after {took_s:.1f} s, context {context} tokens ({source})'
    if took_s > SLOW_S:
        return warn(name, text, "a smaller model, or one on a faster computer in the house")
    if context <= SMALL_CONTEXT and source != "configuration":
        return warn(name, text, "set context_tokens of this endpoint to what the server really has")
    return ok(name, text)


def check_vocabulary(ctx: Context) -> Iterator[Check]:
    """Tokens are counted exactly where that is possible, without a network."""
    from meshai.memory.tokens import uses_o200k
    from meshai.memory.vocabulary import load

    mode = ctx.settings.memory.token_counter
    exact = [endpoint.model for endpoint in ctx.settings.llm.endpoints if uses_o200k(endpoint.model)]
    if mode == "estimate" or (mode == "auto" and not exact):
        yield ok("tokens", "estimated: the vocabulary of this model is not among the known ones")
        return
    try:
        with tempfile.TemporaryDirectory(prefix="meshai-doctor-") as directory:
            count = load(Path(directory))
        yield ok("tokens", f"counted exactly; a test text has {count('How far is it to the summit?')}")
    except (OSError, ValueError, ImportError) as error:
        yield fail(
            "tokens",
            f"the vocabulary cannot be loaded: {error}",
            "install MeshAI again: pip install --force-reinstall meshai",
        )


def _keys(ctx: Context) -> list[SecretStr]:
    """As the daemon gets them: systemd hands the service the file that only root can read."""
    from meshai.llm.keys import keys_for

    env = dict(ctx.env)
    if ctx.loaded is not None and ctx.loaded.source == SERVICE_CONFIG and "CREDENTIALS_DIRECTORY" not in env:
        env["CREDENTIALS_DIRECTORY"] = str(ctx.at(str(SERVICE_CONFIG.parent)))
    return keys_for(ctx.settings.llm.endpoints, env)


def _trouble(name: str, endpoint: Endpoint, error: ModelError) -> Check:
    if isinstance(error, EmptyAnswerError):
        return warn(name, f"{endpoint.model} answers with nothing: {error}", "use a model that does not only think")
    if isinstance(error, ModelRateLimitError):
        return warn(
            name, str(error), "wait, or look at the credit of this account; a second entry in llm.endpoints helps"
        )
    if isinstance(error, ModelKeyError):
        fix = "sudo install -m 600 /dev/stdin /etc/meshai/llm_api_key, paste the key, Enter, Ctrl-D"
        return fail(name, str(error), f"{fix}; then: sudo systemctl restart meshai")
    return fail(name, str(error), f"curl {shown(endpoint.base_url).rstrip('/')}/models, on this computer")


def _short(words: str) -> str:
    return " ".join(words.split())[:40]
