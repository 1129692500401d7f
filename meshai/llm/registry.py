"""Which ChatModel the settings ask for. A new kind of model is one module and one line here."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import SecretStr

from meshai.clock import Clock
from meshai.config.model import Endpoint, Settings
from meshai.errors import UsageError
from meshai.llm.base import ChatModel, OnCall, Recall
from meshai.llm.client import EndpointClient
from meshai.llm.failover import FailoverModel
from meshai.llm.keys import NO_KEY, keys_for
from meshai.llm.offline import OfflineAnswerer
from meshai.llm.slots import Slots

SUMMARIZER = "summarizer"


def open_model(
    settings: Settings, *, clock: Clock, on_call: OnCall | None = None, recall: Recall | None = None
) -> ChatModel:
    """The model that answers: the endpoints in order, or the offline answerer when there are none.

    ``recall`` finds a person's own earlier messages for the offline answerer. Nothing is loaded or connected yet.
    Raises UsageError, MissingError for keys and addresses that cannot be right.
    """
    llm = settings.llm
    if not llm.endpoints:
        return OfflineAnswerer(clock=clock, recall=recall, on_call=on_call, max_bytes=settings.reply.max_bytes)
    return _failover(llm.endpoints, keys_for(llm.endpoints), Slots(llm.parallel), clock, on_call)


def open_summarizer(settings: Settings, model: ChatModel, *, clock: Clock, on_call: OnCall | None = None) -> ChatModel:
    """The model that writes summaries: the replying one, unless ``memory.model`` or its ``base_url`` names another.

    Close it only if it is not ``model`` itself.
    """
    name, url = settings.memory.model, settings.memory.tuning.base_url
    if not isinstance(model, FailoverModel) or not (name or url):
        return model
    if url:
        first = settings.llm.endpoints[0]
        same = urlsplit(url).netloc == urlsplit(first.base_url).netloc
        changes: dict[str, object] = {"name": SUMMARIZER, "base_url": url, "model": name or first.model}
        # A key is meant for one server: another one is asked without.
        if not same:
            changes |= {"api_key": NO_KEY, "api_key_file": ""}
        endpoint = first.model_copy(update=changes)
        key = keys_for(settings.llm.endpoints)[0] if same else NO_KEY
        return _failover([endpoint], [key], Slots(settings.llm.parallel), clock, on_call)
    endpoints = [endpoint.model_copy(update={"model": name}) for endpoint in settings.llm.endpoints]
    return _failover(endpoints, keys_for(endpoints), model.slots, clock, on_call)


def _failover(
    endpoints: list[Endpoint], keys: list[SecretStr], slots: Slots, clock: Clock, on_call: OnCall | None
) -> FailoverModel:
    for endpoint in endpoints:
        _check_address(endpoint)
    pairs = zip(endpoints, keys, strict=True)
    clients = [EndpointClient(endpoint, clock=clock, key=key, on_call=on_call) for endpoint, key in pairs]
    return FailoverModel(clients, slots=slots, clock=clock)


def _check_address(endpoint: Endpoint) -> None:
    try:
        parts = urlsplit(endpoint.base_url)
        usable = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"llm.endpoints: base_url of {endpoint.name} is not an address like http://127.0.0.1:11434/v1")
