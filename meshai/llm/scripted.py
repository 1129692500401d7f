"""A scripted OpenAI-compatible server: real HTTP on loopback, answers as told. For tests, benchmarks and demos.

::

    async with ScriptedServer() as server:
        server.reply("Hello!", Reply.error(503), "Again")         # the next three answers, in order
        server.rule = lambda prompt: f"you said {prompt.last}"    # for everything after them
        ... point a client at server.base_url ...
        assert server.requests[0].last == "Hi"

What is asked for context length (``/props``, ``/v1/models``, ``/api/ps``, ``/api/v0/models``) answers 404 until a
``serve_*`` method was called. Tokens are counted as UTF-8 bytes / 4, rounded up, 4 more per message.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from meshai.clock import Clock, SystemClock
from meshai.llm.scripted_http import ClientGoneError, Connection, HttpRequest

MESSAGE_TOKENS = 4


def count_tokens(text: str) -> int:
    """The server's own tokenizer."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server. The class methods below make the usual ones."""

    text: str = ""
    pieces: tuple[str, ...] = ()  # the text as exactly these deltas; empty: one delta per word
    reasoning: str = ""  # sent before the text
    reasoning_field: str = "reasoning_content"  # or "reasoning"
    finish: str | None = "stop"  # None: the stream just ends after the text
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None  # instead of an answer: bytes as they are, anything else as JSON
    content_type: str = "application/json"
    tokens_per_s: float = 0.0  # 0: as fast as it goes
    keepalives: int = 0  # comment lines and empty role deltas before the first token, one per 1 / tokens_per_s
    wait: asyncio.Event | None = None  # nothing is sent before it is set
    hang: bool = False  # never answers
    hang_after: int | None = None  # goes silent after this many deltas
    break_after: int | None = None  # breaks the connection after this many deltas
    reset: bool = False  # … by RST instead of an end of file
    echo: bool = False  # the text is the last message of the prompt
    no_choices: bool = False  # 200 with "choices": []
    no_usage: bool = False
    prompt_tokens: int | None = None  # None: counted
    usage_scale: float = 1.0  # applied to the counted prompt tokens

    @classmethod
    def error(cls, status: int = 500, message: str = "something broke", **extra: object) -> Reply:
        """An error in OpenAI's JSON form; ``extra`` goes into the error object."""
        return cls(status=status, body={"error": {"message": message, "type": "server_error", "code": status, **extra}})

    @classmethod
    def rate_limit(cls, retry_after: float | str | None = None) -> Reply:
        """429, with Retry-After if given."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        return replace(cls.error(429, "Rate limit reached", type="rate_limit_error"), headers=headers)

    @classmethod
    def unauthorized(cls, message: str = "Incorrect API key provided") -> Reply:
        """401."""
        return cls.error(401, message, type="invalid_request_error", code="invalid_api_key")

    @classmethod
    def no_such_model(cls, model: str) -> Reply:
        """404 as Ollama and vLLM say it."""
        return cls.error(404, f'model "{model}" not found, try pulling it first', type="api_error")

    @classmethod
    def no_such_path(cls) -> Reply:
        """404 of a web server that does not know the path."""
        return cls(status=404, body=b"404 page not found", content_type="text/plain")

    @classmethod
    def too_long(cls, n_ctx: int, n_prompt: int = 0) -> Reply:
        """400 as llama.cpp says it."""
        message = (
            f"the request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        )
        return cls.error(400, message, type="exceed_context_size_error", n_ctx=n_ctx, n_prompt_tokens=n_prompt)

    @classmethod
    def garbage(cls) -> Reply:
        """200 with something that is not JSON, in bytes that are not UTF-8."""
        return cls(body=b"<html>\xff\xfe it works! %s{}", content_type="text/html")

    @classmethod
    def thinking(cls, reasoning: str, text: str = "", *, finish: str = "stop") -> Reply:
        """An answer with a reasoning field; without text: a model that only thought."""
        return cls(text=text, reasoning=reasoning, finish=finish)


@dataclass(slots=True)
class Seen:
    """A chat request the server got. Headers carry the key: they are kept for assertions and stay out of ``repr``."""

    messages: list[dict[str, Any]]
    body: dict[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    path: str
    prompt_tokens: int = 0  # as counted by the server, before scaling
    shared: int = 0  # bytes of the prompt that equal the beginning of the previous one
    cached_tokens: int = 0  # the same in tokens, as reported in ``usage``
    reply: Reply | None = None
    cancelled: bool = False  # the client left before the answer was complete
    done: bool = False

    @property
    def prompt(self) -> str:
        """All messages in one text: ``role: content``, one after the other."""
        return "".join(f"{m.get('role')}: {m.get('content')}\n" for m in self.messages)

    @property
    def system(self) -> str:
        """The system message, or ""."""
        return next((str(m["content"]) for m in self.messages if m.get("role") == "system"), "")

    @property
    def last(self) -> str:
        """The text of the last message."""
        return str(self.messages[-1].get("content", "")) if self.messages else ""


Rule = Callable[[Seen], "Reply | str"]


REFUSAL = Reply("I'm sorry, but I can't help with that.")


class ScriptedServer:
    """An OpenAI-compatible server on a loopback port; everything it was asked is in ``requests``."""

    def __init__(self, *, model: str = "scripted", clock: Clock | None = None) -> None:
        self.model = model
        self.requests: list[Seen] = []  # chat completions, in order of arrival
        self.others: list[HttpRequest] = []  # every other request
        self.rule: Rule = lambda prompt: "OK"  # noqa: ARG005 - a rule gets the prompt
        self.n_ctx = 0  # the context the server really has; 0: unlimited
        self.overflow: Literal["error", "truncate"] = "error"  # 400, or drop the oldest messages silently (Ollama)
        self._clock = clock or SystemClock()
        self._queue: deque[Reply] = deque()
        self._paths: dict[str, Reply] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._arrived = asyncio.Condition()
        self._port = 0

    @property
    def base_url(self) -> str:
        """What goes into ``base_url`` of an endpoint."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The server without ``/v1``."""
        return f"http://127.0.0.1:{self._port}"

    def reply(self, *replies: Reply | str) -> None:
        """Queue answers; they go before ``rule``."""
        self._queue.extend(_as_reply(reply) for reply in replies)

    def serve(self, path: str, body: object, status: int = 200) -> None:
        """Answer GET requests for ``path`` with this JSON (or bytes)."""
        self._paths[path] = Reply(status=status, body=body)

    def serve_props(self, n_ctx: int) -> None:
        """Be a llama.cpp server."""
        self.serve("/props", {"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": 1})

    def serve_models(self, *models: str, max_model_len: int | None = None) -> None:
        """List models; with ``max_model_len`` be a vLLM server."""
        extra = {} if max_model_len is None else {"max_model_len": max_model_len}
        data = [{"id": model, "object": "model", **extra} for model in models or (self.model,)]
        self.serve("/v1/models", {"object": "list", "data": data})

    def serve_ollama(self, context_length: int) -> None:
        """Be an Ollama server with the model loaded."""
        model = {"name": self.model, "model": self.model, "context_length": context_length}
        self.serve("/api/ps", {"models": [model]})

    def serve_lm_studio(self, loaded_context_length: int) -> None:
        """Be an LM Studio server with the model loaded."""
        model = {"id": self.model, "state": "loaded", "max_context_length": 131072}
        self.serve("/api/v0/models", {"data": [{**model, "loaded_context_length": loaded_context_length}]})

    async def wait_for_requests(self, count: int) -> None:
        """Return once ``count`` chat requests have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def start(self, port: int = 0) -> None:
        """Listen on a loopback port; 0 takes a free one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, "127.0.0.1", port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection; clients see the server go away."""
        if self._server is not None:
            self._server.close()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in self._connections:
            connection.drop(reset=False)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    def _connect(self) -> Connection:
        connection = Connection(self._answer)
        self._connections.add(connection)
        return connection

    async def _answer(self, request: HttpRequest, connection: Connection) -> None:
        path = request.path.split("?")[0]
        if request.method == "POST" and path.endswith("/chat/completions"):
            await self._chat(request, connection)
            return
        self.others.append(request)
        reply = self._paths.get(path, Reply.no_such_path())
        await self._send_body(reply, connection)

    async def _chat(self, request: HttpRequest, connection: Connection) -> None:
        seen = self._note(request)
        async with self._arrived:
            self.requests.append(seen)
            self._arrived.notify_all()
        too_long = bool(self.n_ctx) and seen.prompt_tokens > self.n_ctx
        if too_long and self.overflow == "error":
            reply = Reply.too_long(self.n_ctx, seen.prompt_tokens)
        elif self._queue:
            reply = self._queue.popleft()
        else:
            reply = _as_reply(self.rule(seen))
        seen.reply = reply
        try:
            await self._say(reply, seen, connection)
        except (ClientGoneError, asyncio.CancelledError):
            seen.cancelled = True
            raise
        seen.done = True

    def _note(self, request: HttpRequest) -> Seen:
        body = json.loads(request.body)
        seen = Seen(list(body.get("messages", [])), body, request.headers, request.path)
        before = self.requests[-1].prompt.encode("utf-8", "surrogatepass") if self.requests else b""
        prompt = seen.prompt.encode("utf-8", "surrogatepass")
        seen.shared = _shared(before, prompt)
        messages = list(seen.messages)
        seen.prompt_tokens = _tokens(messages)
        while self.n_ctx and self.overflow == "truncate" and len(messages) > 1 and _tokens(messages) > self.n_ctx:
            messages.pop(1 if messages[0].get("role") == "system" and len(messages) > 2 else 0)
            seen.prompt_tokens = _tokens(messages)
        seen.cached_tokens = min(seen.shared // 4, seen.prompt_tokens)
        return seen

    async def _say(self, reply: Reply, seen: Seen, connection: Connection) -> None:
        if reply.wait is not None:
            await connection.unless_gone(reply.wait.wait())
        if reply.hang:
            await connection.gone.wait()
            raise ClientGoneError
        if reply.body is not None or reply.status != 200:
            await self._send_body(reply, connection)
        elif seen.body.get("stream"):
            await self._stream(reply, seen, connection)
        else:
            await self._whole(reply, seen, connection)

    async def _send_body(self, reply: Reply, connection: Connection) -> None:
        if isinstance(reply.body, bytes):
            connection.respond(reply.status, reply.body, content_type=reply.content_type, headers=reply.headers)
        else:
            connection.respond_json(reply.status, reply.body, reply.headers)

    async def _whole(self, reply: Reply, seen: Seen, connection: Connection) -> None:
        pieces = _pieces(reply, seen)
        await self._pace(reply, connection, len(pieces))
        if reply.hang_after is not None:
            await connection.gone.wait()
            raise ClientGoneError
        if reply.break_after is not None:
            connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{")
            connection.drop(reset=reply.reset)
            raise ClientGoneError
        message: dict[str, object] = {"role": "assistant", "content": "".join(pieces)}
        if reply.reasoning:
            message[reply.reasoning_field] = reply.reasoning
        choice = {"index": 0, "message": message, "finish_reason": reply.finish}
        body = self._envelope("chat.completion", [] if reply.no_choices else [choice])
        if not reply.no_usage:
            body["usage"] = _usage(reply, seen)
        connection.respond_json(200, body, reply.headers)

    async def _stream(self, reply: Reply, seen: Seen, connection: Connection) -> None:
        connection.begin_chunks(200, "text/event-stream", reply.headers)
        self._delta(connection, reply, {"role": "assistant", "content": ""})
        for _ in range(reply.keepalives):
            await self._pace(reply, connection, 1)
            connection.chunk(b": keep-alive\n\n")
            self._delta(connection, reply, {"role": "assistant", "content": ""})
        deltas: list[dict[str, object]] = [{reply.reasoning_field: piece} for piece in _words(reply.reasoning)]
        deltas += [{"content": piece} for piece in _pieces(reply, seen)]
        for number, delta in enumerate(deltas):
            if number == reply.break_after:
                connection.drop(reset=reply.reset)
                raise ClientGoneError
            if number == reply.hang_after:
                await connection.gone.wait()
                raise ClientGoneError
            await self._pace(reply, connection, 1)
            self._delta(connection, reply, delta)
        if reply.finish is not None:
            self._delta(connection, reply, {}, reply.finish)
        if not reply.no_usage and (seen.body.get("stream_options") or {}).get("include_usage"):
            self._event(connection, {**self._envelope("chat.completion.chunk", []), "usage": _usage(reply, seen)})
        if reply.finish is not None:
            connection.chunk(b"data: [DONE]\n\n")
        connection.chunk(b"")

    def _delta(self, connection: Connection, reply: Reply, delta: object, finish: str | None = None) -> None:
        choices = [] if reply.no_choices else [{"index": 0, "delta": delta, "finish_reason": finish}]
        self._event(connection, self._envelope("chat.completion.chunk", choices))

    @staticmethod
    def _event(connection: Connection, event: object) -> None:
        connection.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _envelope(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        created = int(self._clock.now())
        return {"id": "chatcmpl-1", "object": kind, "created": created, "model": self.model, "choices": choices}

    async def _pace(self, reply: Reply, connection: Connection, tokens: int) -> None:
        if reply.tokens_per_s > 0:
            await connection.unless_gone(self._clock.sleep(tokens / reply.tokens_per_s))


def _as_reply(reply: Reply | str) -> Reply:
    return Reply(reply) if isinstance(reply, str) else reply


def _words(text: str) -> list[str]:
    """The text as deltas of one word each, the space before it included."""
    words = text.split(" ")
    return [word if not number else f" {word}" for number, word in enumerate(words)] if text else []


def _pieces(reply: Reply, seen: Seen) -> list[str]:
    if reply.pieces:
        return list(reply.pieces)
    return _words(seen.last if reply.echo else reply.text)


def _shared(before: bytes, now: bytes) -> int:
    """Length of the common beginning: what a prompt cache would not compute again."""
    low, high = 0, min(len(before), len(now))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == now[:middle] else (low, middle - 1)
    return low


def _tokens(messages: list[dict[str, Any]]) -> int:
    return sum(count_tokens(str(message.get("content", ""))) + MESSAGE_TOKENS for message in messages)


def _usage(reply: Reply, seen: Seen) -> dict[str, object]:
    prompt = round(seen.prompt_tokens * reply.usage_scale) if reply.prompt_tokens is None else reply.prompt_tokens
    completion = count_tokens(reply.reasoning) + count_tokens("".join(_pieces(reply, seen)))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": min(seen.cached_tokens, prompt)},
    }
