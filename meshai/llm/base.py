"""What the rest of the program knows of a language model: a protocol and its values. openai is not imported here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol


class Purpose(StrEnum):
    """Why a model is asked; also the priority, highest first (docs/memory.md §2.3)."""

    REPLY = "reply"
    SUMMARIZE = "summarize"
    MERGE = "merge"
    PROBE = "probe"


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a prompt."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request. ``max_tokens`` limits the visible text; a client adds room for thinking by itself."""

    messages: tuple[ChatMessage, ...]
    max_tokens: int
    temperature: float = 0.7
    purpose: Purpose = Purpose.REPLY
    question: str = ""  # the person's own words, for answerers that search instead of generating
    conv_id: int = 0  # the conversation asked about; 0: none
    deadline_s: float = 180.0  # for the whole request, every endpoint and retry included (DESIGN §3)
    inbound_id: int = 0  # the stored question this answers; 0: none. Only passed on to the CallRecord
    tokens_est: int = 0  # what the caller thinks the prompt has; only passed on to the CallRecord
    gives_way: bool = True  # background work that was stopped often enough is finished in front of a reply


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server counted; 0 when it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """How a stream ended. ``truncated``: the model ran into its token limit, the text is incomplete."""

    truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    endpoint: str = ""
    model: str = ""
    first_token_ms: int = 0
    total_ms: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer: visible text only, thinking removed. The last one carries ``finish``."""

    text: str = ""
    finish: Finish | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer."""

    text: str
    finish: Finish


class Outcome(StrEnum):
    """How a call ended, as ``llm_calls.outcome``."""

    OK = "ok"
    TRUNCATED = "truncated"  # ran into the token limit
    EMPTY = "empty"
    ONLY_THINKING = "only_thinking"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    KEY = "key"
    RATE_LIMIT = "rate_limit"
    REQUEST = "request"
    CONTEXT = "context"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of one endpoint, its retries included; ``started_at`` is wall time. The row of ``llm_calls``."""

    purpose: Purpose
    endpoint: str
    model: str
    outcome: Outcome
    request: ChatRequest = field(repr=False)
    usage: Usage = field(default_factory=Usage)
    first_token_ms: int = 0  # 0: no visible text came
    ms: int = 0
    requests: int = 1  # HTTP requests it took
    started_at: float = 0.0
    detail: str = ""  # the error's text; never a key


OnCall = Callable[[CallRecord], None]
"""Told of every finished or failed call, on the event loop; must not block. What it raises is logged and dropped."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """An earlier message. ``date``: seconds since 1970, 0 unknown; ``who``: "" for the one who asks, else a name."""

    date: float
    who: str
    text: str


Recall = Callable[[int, str], Awaitable[list[Recalled]]]
"""``recall(conv_id, question)``: what people wrote there (no answers, no commands) that fits, best first."""


class ChatModel(Protocol):
    """Anything that answers a prompt. A new one is one module plus one line in ``llm.registry``."""

    @property
    def label(self) -> str:
        """Model and endpoint in a few words, for ``!status``."""
        ...

    @property
    def is_offline(self) -> bool:
        """True for the answerer that needs no model: nothing it says may be called a model's answer."""
        ...

    @property
    def leaves_house(self) -> bool:
        """True when the question goes to a server outside the private network (said in the disclosure)."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Yield visible text as it comes; the last delta carries ``finish``.

        Raises ModelError; EmptyAnswerError when the stream ended without visible text. Closing the
        iterator (``aclose``) cancels the request.
        """
        ...

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer at once. Raises ModelError."""
        ...

    async def context_tokens(self) -> int:
        """The model's context length: configured, asked from the server, or 2048. Never raises."""
        ...

    def status(self) -> dict[str, object]:
        """Facts for ``status``: endpoints, failures, rests, tokens; JSON types only, no secrets."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
