"""How many tokens a model's context has: configured, asked from the server, or 2048 (docs/memory.md §2.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

from meshai.clock import Clock
from meshai.config.model import Endpoint
from meshai.llm.places import leaves_house
from meshai.llm.wire import Wire, WireError

log = logging.getLogger(__name__)

LAST_RESORT = 2048
ASK_TIMEOUT_S = 3.0
MIN_PLAUSIBLE = 256
NOT_ASKED = "not asked yet"
UNKNOWN = "the server does not say"


class Context:
    """The context length of one endpoint, remembered until a failure."""

    def __init__(self, endpoint: Endpoint, wire: Wire, clock: Clock) -> None:
        self.known = endpoint.context_tokens or LAST_RESORT
        self.source = "configuration" if endpoint.context_tokens else NOT_ASKED
        self._endpoint = endpoint
        self._wire = wire
        self._clock = clock
        self._settled = bool(endpoint.context_tokens)
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def tokens(self) -> int:
        """The context length; asks the server when needed, at most once a minute in vain. Never raises."""
        async with self._asking:
            if not self._settled and not self._asked_lately():
                self._asked_at = self._clock.monotonic()
                await self._ask()
            return self.known

    def learn(self, tokens: int) -> None:
        """The server named its limit in an error: that counts, whatever was configured."""
        if tokens >= MIN_PLAUSIBLE and tokens != self.known:
            log.warning("endpoint %s: the context is %d tokens, not %d", self._endpoint.name, tokens, self.known)
            self.known, self.source, self._settled = tokens, "the server's error", True

    def forget(self) -> None:
        """Ask again next time; until then the old value stands."""
        self._asked_at = None
        self._settled = bool(self._endpoint.context_tokens) and self.source == "configuration"

    def answered(self) -> None:
        """The model answered, so it is loaded: Ollama and LM Studio can say now what they could not before."""
        if self.source == UNKNOWN and not leaves_house(self._endpoint.base_url):
            self._asked_at = None

    def _asked_lately(self) -> bool:
        return self._asked_at is not None and self._clock.monotonic() - self._asked_at < 60.0

    async def _ask(self) -> None:
        try:
            found = await discover(self._endpoint, self._wire)
        except WireError as error:
            log.debug("endpoint %s: context length not known: %s", self._endpoint.name, error)
            return
        if found is not None:
            self.known, self.source = found
            self._settled = True
        elif self.source == NOT_ASKED:
            self.source = UNKNOWN


async def discover(endpoint: Endpoint, wire: Wire) -> tuple[int, str] | None:
    """The context length and who said it; None when nobody did. Raises WireError when unreachable."""
    base = endpoint.base_url.rstrip("/")
    models = _vllm(await wire.get_json(f"{base}/models", ASK_TIMEOUT_S), endpoint.model)
    if models is not None:
        return models, "/v1/models"
    if leaves_house(endpoint.base_url):
        return None  # a cloud has none of the local servers' addresses
    root = base.removesuffix("/v1")
    for path, reader in (("/props", _llama_cpp), ("/api/v0/models", _lm_studio), ("/api/ps", _ollama)):
        tokens = reader(await wire.get_json(root + path, ASK_TIMEOUT_S), endpoint.model)
        if tokens is not None:
            return tokens, path
    return None


def _llama_cpp(answer: object, _model: str) -> int | None:
    settings = answer.get("default_generation_settings") if isinstance(answer, dict) else None
    return _plausible(settings.get("n_ctx")) if isinstance(settings, dict) else None


def _vllm(answer: object, model: str) -> int | None:
    """``max_model_len`` of vLLM; hosted services say ``context_length`` or ``context_window``."""
    names = ("max_model_len", "context_length", "context_window", "max_context_length")
    for entry in _entries(answer, "data", model):
        if "state" in entry:
            continue  # LM Studio: that is what the model could do, not what it was loaded with
        found = next((tokens for name in names if (tokens := _plausible(entry.get(name)))), None)
        if found is not None:
            return found
    return None


def _lm_studio(answer: object, model: str) -> int | None:
    entries = _entries(answer, "data", model)
    return next((t for entry in entries if (t := _plausible(entry.get("loaded_context_length")))), None)


def _ollama(answer: object, model: str) -> int | None:
    entries = _entries(answer, "models", model)
    return next((t for entry in entries if (t := _plausible(entry.get("context_length")))), None)


def _entries(answer: object, key: str, model: str) -> Iterator[dict[str, Any]]:
    """The entries that are this model; ``llama3.2`` is ``llama3.2:latest``."""
    listed = answer.get(key) if isinstance(answer, dict) else None
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and {entry.get("id"), entry.get("name"), entry.get("model")} & {
            model,
            f"{model}:latest",
        }:
            yield entry


def _plausible(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= MIN_PLAUSIBLE else None
