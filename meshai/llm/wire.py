"""HTTP to one OpenAI-compatible server: the only module that touches openai and httpx2.

Yields what the server sends as JSON objects and turns every failure into a WireError. openai's own retries are off
and its stream reader is not used: it ends on one bad line, hides ``[DONE]``, and takes keep-alive comments for life.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import SecretStr

from meshai.clock import Clock
from meshai.config.model import Endpoint
from meshai.errors import (
    ModelError,
    ModelKeyError,
    ModelRateLimitError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from meshai.llm.cleanup import clean
from meshai.llm.keys import scrub
from meshai.llm.places import leaves_house, shown
from meshai.llm.quirks import Refusal, explain

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI, Omit

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_S = 5.0  # DESIGN §4.2: connecting has its own 5 s
MAX_ANSWER_BYTES = 8_000_000  # far more than any answer; a server gone mad must not fill the memory
DRAIN_S = 0.2  # reading on after [DONE] lets the connection be used again
RETRY_STATUS = {408, 409, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529}
DONE: dict[str, Any] = {"done": True}  # stands for the [DONE] line


class WireError(Exception):
    """A request that failed; ``error`` is what the rest of the program gets to see."""

    def __init__(
        self,
        error: ModelError,
        *,
        retry: bool = False,
        retry_after_s: float | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self.error = error
        self.retry = retry  # the same request may succeed in a moment
        self.retry_after_s = retry_after_s
        self.refusal = refusal
        super().__init__(str(error))


class Patience:
    """How long to wait for the next token: the endpoint's silence, and the question's deadline."""

    def __init__(self, clock: Clock, silence_s: float, deadline: float) -> None:
        self._clock = clock
        self._silence_s = silence_s
        self._deadline = deadline
        self._since = clock.monotonic()

    def token(self) -> None:
        """A token came."""
        self._since = self._clock.monotonic()

    async def within(self, work: Awaitable[T]) -> T:
        """Wait for ``work``. Raises WireError (ModelTimeoutError)."""
        now = self._clock.monotonic()
        silence, rest = self._since + self._silence_s - now, self._deadline - now
        try:
            async with asyncio.timeout(max(0.0, min(silence, rest))):
                return await work
        except TimeoutError:
            why = f"silent for {self._silence_s:g} s" if silence <= rest else "the question's time is up"
            raise WireError(ModelTimeoutError(why)) from None


class Wire:
    """One server. The library is loaded at first use, in a thread: it takes a Pi two seconds."""

    def __init__(self, endpoint: Endpoint, key: SecretStr, clock: Clock) -> None:
        self._endpoint = endpoint
        self._key = key
        self._clock = clock
        self._client: AsyncOpenAI | None = None
        self._http: httpx2.AsyncClient | None = None
        self._headers: dict[str, Omit] = {}
        self._building = asyncio.Lock()

    async def events(self, body: dict[str, Any], patience: Patience) -> AsyncGenerator[dict[str, Any], None]:
        """The answer to a chat request: the objects of its stream and DONE, or the one object of a plain answer."""
        client = await self._ready()
        create: Any = client.chat.completions.with_streaming_response.create
        request = {**body, "extra_body": self._endpoint.extra_body or None, "extra_headers": self._headers}
        async with self._mapped(), AsyncExitStack() as stack:
            response = await patience.within(stack.enter_async_context(create(**request)))
            chunks = response.iter_bytes()
            parser = EventParser()
            while (chunk := await patience.within(anext(chunks, None))) is not None:
                for event in parser.feed(chunk):
                    if event is DONE:
                        await _drain(chunks)
                        yield DONE
                        return
                    yield event
            for event in parser.end():
                yield event

    async def get_json(self, url: str, timeout_s: float) -> object:
        """What a GET answers, None when it answers anything but JSON with status 200. Raises WireError."""
        status, body = await self.get(url, timeout_s)
        return body if status == 200 else None

    async def get(self, url: str, timeout_s: float) -> tuple[int, object]:
        """Status and JSON of a GET, None for a body that is none. Raises WireError when there is no answer."""
        await self._ready()
        assert self._http is not None
        secret = self._key.get_secret_value()
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        patience = Patience(self._clock, timeout_s, self._clock.monotonic() + timeout_s)
        async with self._mapped():
            response = await patience.within(self._http.get(url, headers=headers))
            try:
                return response.status_code, response.json()
            except ValueError:
                return response.status_code, None

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ready(self) -> AsyncOpenAI:
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(self._build)
            return self._client

    def _build(self) -> AsyncOpenAI:
        import httpx2
        from openai import AsyncOpenAI, Omit

        for name in ("openai", "httpx2", "httpcore2"):
            # Below that they log addresses with everything in them, and whole prompts.
            logging.getLogger(name).setLevel(logging.WARNING)
        silence = self._endpoint.timeout_s
        timeout = httpx2.Timeout(connect=CONNECT_S, read=silence, write=30.0, pool=CONNECT_S)
        inside = not leaves_house(self._endpoint.base_url)
        # A proxy of the environment must not get what stays in the house; SSL_CERT_FILE still counts there.
        verify = httpx2.create_ssl_context(trust_env=True) if self._endpoint.base_url.startswith("https:") else False
        self._http = httpx2.AsyncClient(timeout=timeout, trust_env=not inside, verify=verify, follow_redirects=False)
        key = self._key.get_secret_value()
        # What the environment has in OPENAI_* is meant for somebody else's server.
        self._headers = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        if not key:
            self._headers["Authorization"] = Omit()
        return AsyncOpenAI(
            api_key=key or "none",
            base_url=self._endpoint.base_url,
            timeout=timeout,
            max_retries=0,
            http_client=self._http,
            admin_api_key="",
            organization="",
            project="",
        )

    @asynccontextmanager
    async def _mapped(self) -> AsyncIterator[None]:
        """Every failure of the libraries becomes a WireError; its text is fit for the log."""
        import anyio
        import httpx2
        import openai

        try:
            yield
        except openai.APIStatusError as error:
            raise self._refused(error.status_code, error.body, error.response.headers) from None
        except (
            openai.APIConnectionError,
            httpx2.RequestError,
            httpx2.StreamError,
            OSError,
            anyio.EndOfStream,
        ) as error:
            raise self._unreachable(error) from None
        except (openai.OpenAIError, httpx2.InvalidURL, ValueError) as error:
            raise WireError(ModelUnavailableError(self._fit(f"{type(error).__name__}: {error}"))) from None

    def _unreachable(self, error: Exception) -> WireError:
        import httpx2

        cause = error.__cause__ if isinstance(error.__cause__, httpx2.HTTPError) else error  # below openai's own
        where = shown(self._endpoint.base_url)
        if isinstance(cause, httpx2.ConnectTimeout):
            return WireError(ModelUnavailableError(f"no connection to {where} within {CONNECT_S:g} s"), retry=True)
        if isinstance(cause, httpx2.TimeoutException):
            return WireError(ModelTimeoutError(f"silent for {self._endpoint.timeout_s:g} s"))
        said = self._fit(str(cause)) or type(cause).__name__
        if isinstance(cause, httpx2.ConnectError):
            return WireError(ModelUnavailableError(f"no connection to {where}: {said}"), retry=True)
        return WireError(ModelUnavailableError(f"the connection to {where} broke: {said}"), retry=True)

    def _refused(self, status: int, body: object, headers: httpx2.Headers) -> WireError:
        refusal = Refusal.parse(status, body)
        after = _retry_after(headers, self._clock.now())
        return self.refused(refusal, after)

    def refused(self, refusal: Refusal, retry_after_s: float | None = None) -> WireError:
        """The failure for an error the server told, by status or inside a stream."""
        status = refusal.status
        said = self._fit(refusal.message)
        told = f" ({status}){': ' + said if said else ''}"
        if status in {401, 402, 403}:
            return WireError(ModelKeyError(f"the server refuses the key{told}"), refusal=refusal)
        if status == 429:
            retry = "insufficient_quota" not in refusal.code
            error = ModelRateLimitError(f"rate limit{told}", retry_after_s)
            return WireError(error, retry=retry, retry_after_s=retry_after_s, refusal=refusal)
        if refusal.about_context or (status < 500 and status not in RETRY_STATUS):
            found = explain(refusal, base_url=shown(self._endpoint.base_url), model=self._endpoint.model)
            found.args = (self._fit(str(found)),)
            return WireError(found, refusal=refusal)
        broken = ModelUnavailableError(f"the server failed{told}")
        return WireError(broken, retry=status in RETRY_STATUS, retry_after_s=retry_after_s, refusal=refusal)

    def _fit(self, text: str) -> str:
        """A server's words, fit for one log line."""
        return " ".join(clean(scrub(text, self._key)).split())[:300]


class EventParser:
    """Server-sent events, or one JSON document, from bytes cut anywhere. Lines that are neither are skipped."""

    def __init__(self) -> None:
        self._buffer = b""
        self._other = bytearray()
        self._size = 0
        self._events = 0

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The objects completed by this chunk. Raises WireError for an answer beyond all bounds."""
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            raise WireError(ModelUnavailableError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes"))
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[dict[str, Any]]:
        """What the last line and the text outside of events amount to."""
        rest, self._buffer = self._buffer, b""
        yield from self._line(rest)
        document = _json_object(bytes(self._other)) if not self._events else None
        if document is not None:
            yield document

    def _line(self, line: bytes) -> Iterator[dict[str, Any]]:
        line = line.rstrip(b"\r")
        if not line.startswith(b"data:"):
            if not line.startswith((b":", b"event:", b"id:", b"retry:")):
                self._other += line + b"\n"
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self._events += 1
            yield DONE
        elif (event := _json_object(data)) is not None:
            self._events += 1
            yield event
        elif data:
            log.debug("skipped a line of a stream that is not JSON (%d bytes)", len(data))


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
    except TimeoutError:
        pass  # the connection is closed instead of kept


def _retry_after(headers: httpx2.Headers, now: float) -> float | None:
    """Seconds from ``Retry-After`` (a number or a date) or ``retry-after-ms``; None when absent or unreadable."""
    milliseconds, text = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    try:
        seconds = float(milliseconds) / 1000 if milliseconds else float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now
        except ValueError:
            return None
    return max(0.0, seconds) if seconds == seconds and seconds < 1e9 else None  # noqa: PLR0124 - NaN
