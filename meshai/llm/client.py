"""One endpoint: builds requests, reads answers, retries, learns what the server does not take, reports each call."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from meshai.clock import Clock
from meshai.config.model import Endpoint
from meshai.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelError,
    ModelKeyError,
    ModelRateLimitError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from meshai.llm.base import CallRecord, ChatRequest, Delta, Finish, OnCall, Outcome, Usage
from meshai.llm.chunks import Piece, read
from meshai.llm.cleanup import Cleaner
from meshai.llm.discover import Context
from meshai.llm.keys import NO_KEY
from meshai.llm.places import leaves_house, shown
from meshai.llm.quirks import Quirks, Refusal
from meshai.llm.wire import Patience, Wire, WireError

log = logging.getLogger(__name__)

RETRIES = 2  # of one request on one endpoint
BACKOFF_S = (0.5, 2.0)
IMPATIENT_S = 2.0  # longest wait before a retry while another endpoint is left
THINKING_FACTOR = 8  # room for reasoning: max_tokens limits what is visible
THINKING_FLOOR = 1500
MAX_VISIBLE_BYTES_PER_TOKEN = 5  # with that room the server's own limit no longer holds the visible text down
OUTCOMES: tuple[tuple[type[ModelError], Outcome], ...] = (
    (ModelTimeoutError, Outcome.TIMEOUT),
    (ModelKeyError, Outcome.KEY),
    (ModelRateLimitError, Outcome.RATE_LIMIT),
    (ContextTooLongError, Outcome.CONTEXT),
    (ModelRequestError, Outcome.REQUEST),
    (EmptyAnswerError, Outcome.EMPTY),
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call may do. ``deadline`` is on the clock's monotonic scale."""

    deadline: float
    patient: bool = True  # no other endpoint is left: waits between retries may be long
    whole: bool = False  # nothing is passed on before the end, so a broken answer can be asked for again
    preempted: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class _Call:
    """One call while it runs; the fields of the first group hold for its current HTTP request."""

    truncated: bool = False
    ended: bool = False
    answered: bool = False  # anything that looks like an answer came
    roomy: bool = False
    thought: bool = False
    visible_bytes: int = 0
    usage: Usage = field(default_factory=Usage)

    started: float = 0.0
    started_at: float = 0.0
    requests: int = 0
    first_token: float = 0.0
    delivered: bool = False  # visible text was passed on: starting again would repeat it
    finished: bool = False

    def restart(self) -> None:
        """Forget what belongs to one HTTP request."""
        self.truncated = self.ended = self.answered = self.roomy = self.thought = False
        self.visible_bytes = 0
        self.usage = Usage()
        self.requests += 1


class EndpointClient:
    """Asks one server; never another one."""

    def __init__(
        self, endpoint: Endpoint, *, clock: Clock, key: SecretStr = NO_KEY, on_call: OnCall | None = None
    ) -> None:
        self.endpoint = endpoint
        self.leaves_house = leaves_house(endpoint.base_url)
        self._clock = clock
        self._on_call = on_call
        self._has_key = bool(key.get_secret_value())
        self._wire = Wire(endpoint, key, clock)
        self._quirks = Quirks()
        self._context = Context(endpoint, self._wire, clock)
        self._reasons = False
        self._hold = False
        self._calls = 0
        self._tokens = Usage()

    @property
    def label(self) -> str:
        """``model @ name``."""
        return f"{self.endpoint.model} @ {self.endpoint.name}"

    async def stream(self, request: ChatRequest, terms: Terms) -> AsyncGenerator[Delta, None]:
        """The answer; the last delta carries ``finish``. Raises ModelError; reports one CallRecord in any case."""
        call = _Call(started=self._clock.monotonic(), started_at=self._clock.now())
        outcome, detail = Outcome.UNAVAILABLE, ""
        try:
            async with aclosing(self._tries(request, call, terms)) as deltas:
                async for delta in deltas:
                    if delta.finish is not None:
                        outcome = Outcome.TRUNCATED if call.truncated else Outcome.OK
                    yield delta
        except ModelError as error:
            outcome, detail = _outcome(error), str(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            if not call.finished:
                outcome = Outcome.PREEMPTED if terms.preempted() else Outcome.CANCELLED
            raise
        finally:
            self._report(request, call, outcome, detail)

    async def context_tokens(self) -> int:
        """The context length of the model on this server. Never raises."""
        return await self._context.tokens()

    def failed(self, error: ModelError) -> None:
        """The context length is asked again after a failure: the server may come back with another model."""
        if not isinstance(error, EmptyAnswerError | ContextTooLongError):
            self._context.forget()

    def status(self) -> dict[str, object]:
        """Facts about this endpoint; no secrets."""
        return {
            "name": self.endpoint.name,
            "model": self.endpoint.model,
            "base_url": shown(self.endpoint.base_url),
            "leaves_house": self.leaves_house,
            "key": self._has_key,
            "context_tokens": self._context.known,
            "context_source": self._context.source,
            "reasons": self._reasons,
            "quirks": self._quirks.describe(),
            "calls": self._calls,
            "prompt_tokens": self._tokens.prompt_tokens,
            "cached_tokens": self._tokens.cached_tokens,
            "completion_tokens": self._tokens.completion_tokens,
        }

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _tries(self, request: ChatRequest, call: _Call, terms: Terms) -> AsyncGenerator[Delta, None]:
        retries = 0
        while True:
            call.restart()
            try:
                async with aclosing(self._once(request, call, terms)) as deltas:
                    async for delta in deltas:
                        yield delta
            except EmptyAnswerError as error:
                # It thought until the limit: with room for thinking the same question gets an answer.
                if not (error.only_thinking and call.truncated and not call.roomy):
                    raise
                continue
            except WireError as failure:
                self._learn_context(failure)
                if call.delivered:
                    raise failure.error from None
                if self._learned(failure, request, call):
                    continue
                wait = self._wait(failure, retries, terms)
                if wait is None:
                    raise failure.error from None
                retries += 1
                log.info("endpoint %s: %s; again in %.1f s", self.endpoint.name, failure.error, wait)
                await self._clock.sleep(wait)
                continue
            return

    async def _once(self, request: ChatRequest, call: _Call, terms: Terms) -> AsyncGenerator[Delta, None]:
        """One HTTP request. Raises WireError, EmptyAnswerError."""
        patience = Patience(self._clock, self.endpoint.timeout_s, terms.deadline)
        cleaner = Cleaner(hold=self._hold)
        texts: list[str] = []
        async with aclosing(self._wire.events(self._body(request, call), patience)) as events:
            async for event in events:
                text = cleaner.feed(self._take(read(event), call, patience))
                self._check(cleaner, call, terms)
                if not text:
                    continue
                self._saw(text, call)
                if terms.whole:
                    texts.append(text)
                else:
                    call.delivered = True
                    yield Delta(text)
                if call.roomy and call.visible_bytes > request.max_tokens * MAX_VISIBLE_BYTES_PER_TOKEN:
                    call.truncated = call.ended = True
                    break
        text = self._rest(cleaner, call, terms)
        whole = "".join([*texts, text])
        call.finished = True
        yield Delta(whole, self._finish(call))

    def _body(self, request: ChatRequest, call: _Call) -> dict[str, Any]:
        call.roomy = self._reasons
        room = max(request.max_tokens * THINKING_FACTOR, THINKING_FLOOR) if self._reasons else request.max_tokens
        messages = [{"role": m.role, "content": _encodable(m.content)} for m in request.messages]
        return self._quirks.apply(
            {
                "model": self.endpoint.model,
                "messages": messages,
                "max_tokens": room,
                "temperature": request.temperature,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )

    def _take(self, piece: Piece, call: _Call, patience: Patience) -> str:
        if piece.error is not None:
            raise self._wire.refused(Refusal.parse(piece.status, piece.error))
        call.answered = call.answered or piece.is_answer
        call.ended = call.ended or piece.ended
        call.truncated = call.truncated or piece.truncated
        call.usage = piece.usage or call.usage
        if piece.reasoning:
            call.thought = self._reasons = True
        if piece.reasoning or piece.text:
            patience.token()
        return piece.text

    def _check(self, cleaner: Cleaner, call: _Call, terms: Terms) -> None:
        """What the text filter found out about this endpoint."""
        if cleaner.think.thought:
            call.thought = self._reasons = True
        if cleaner.think.orphan and not self._hold:
            self._hold = True
            log.warning(
                "endpoint %s sends its thinking without an opening tag: held back from now on", self.endpoint.name
            )
            error = ModelUnavailableError("the answer began with the model's thinking")
            raise WireError(error, retry=terms.whole or not call.delivered)

    def _saw(self, text: str, call: _Call) -> None:
        call.visible_bytes += len(text.encode())
        call.first_token = call.first_token or self._clock.monotonic()

    def _rest(self, cleaner: Cleaner, call: _Call, terms: Terms) -> str:
        """The end of the text, once the stream is over. Raises WireError, EmptyAnswerError."""
        if not call.answered:
            raise WireError(ModelUnavailableError("that was not an answer of an OpenAI-compatible server"))
        if not call.ended and (call.visible_bytes or call.thought):
            raise WireError(ModelUnavailableError("the stream broke off"), retry=True)
        unclosed = self._hold and call.truncated and not cleaner.think.thought
        text = "" if unclosed else cleaner.end()
        self._check(cleaner, call, terms)
        if text:
            self._saw(text, call)
        if not call.visible_bytes:
            thought = call.thought or unclosed
            raise EmptyAnswerError("the model only thought" if thought else "empty answer", only_thinking=thought)
        return text

    def _finish(self, call: _Call) -> Finish:
        now = self._clock.monotonic()
        return Finish(
            truncated=call.truncated,
            usage=call.usage,
            endpoint=self.endpoint.name,
            model=self.endpoint.model,
            first_token_ms=round((call.first_token - call.started) * 1000),
            total_ms=round((now - call.started) * 1000),
        )

    def _learned(self, failure: WireError, request: ChatRequest, call: _Call) -> bool:
        if failure.refusal is None:
            return False
        lesson = self._quirks.learn(failure.refusal, self._body(request, call))
        if lesson:
            log.info("endpoint %s %s: remembered", self.endpoint.name, lesson)
        return bool(lesson)

    def _learn_context(self, failure: WireError) -> None:
        if isinstance(failure.error, ContextTooLongError) and failure.error.context_tokens:
            self._context.learn(failure.error.context_tokens)

    def _wait(self, failure: WireError, retries: int, terms: Terms) -> float | None:
        """Seconds until the next try; None: no further one."""
        if not failure.retry or retries >= (RETRIES if terms.patient else 1):
            return None
        wait = BACKOFF_S[retries] * random.uniform(0.8, 1.2) if failure.retry_after_s is None else failure.retry_after_s
        rest = terms.deadline - self._clock.monotonic()
        return wait if wait < (rest if terms.patient else min(rest, IMPATIENT_S)) else None

    def _report(self, request: ChatRequest, call: _Call, outcome: Outcome, detail: str) -> None:
        self._calls += 1
        before = self._tokens
        self._tokens = Usage(
            before.prompt_tokens + call.usage.prompt_tokens,
            before.completion_tokens + call.usage.completion_tokens,
            before.cached_tokens + call.usage.cached_tokens,
        )
        if outcome in {Outcome.OK, Outcome.TRUNCATED}:
            self._context.answered()
        if self._on_call is None:
            return
        finish = self._finish(call)
        record = CallRecord(
            request.purpose,
            self.endpoint.name,
            self.endpoint.model,
            outcome,
            request,
            call.usage,
            finish.first_token_ms if call.first_token else 0,
            finish.total_ms,
            call.requests,
            call.started_at,
            detail,
        )
        try:
            self._on_call(record)
        except Exception:  # keeping the books must not cost anybody an answer
            log.exception("recording a model call failed")


def _outcome(error: ModelError) -> Outcome:
    if isinstance(error, EmptyAnswerError) and error.only_thinking:
        return Outcome.ONLY_THINKING
    return next((outcome for kind, outcome in OUTCOMES if isinstance(error, kind)), Outcome.UNAVAILABLE)


def _encodable(text: str) -> str:
    """Lone surrogates cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")
