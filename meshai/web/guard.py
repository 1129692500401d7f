"""What every request passes: host, method, origin, size, login, CSRF; and the headers every response carries."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from http import cookies
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meshai.errors import MeshAIError, StorageError
from meshai.web.access import Guesses, Hosts, Sessions, is_session_id, new_id

log = logging.getLogger(__name__)

MOST_BODY_BYTES = 64 * 1024
MOST_DRAINED_BYTES = 16 * 1024 * 1024
"""Of a body that is too big, so much is read and dropped: else the client sees a reset instead of the answer."""
BODY_S = 10.0
MOST_FIELDS = 20
OPEN_PATHS = ("/login", "/health")
MACHINE_PATHS = ("/metrics", "/live")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer a browser would send "Origin: null" with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

BEARER = {"www-authenticate": 'Bearer realm="MeshAI"'}

ErrorPage = Callable[[Request, int, str], Response]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. ``is_in``: may see and do everything."""

    session: str
    csrf: str
    is_in: bool
    is_new: bool = False
    by_bearer: bool = False


class RefusedError(MeshAIError):
    """The request is answered with this status and sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}


@dataclass
class Guard:
    """ASGI middleware around the whole site."""

    app: ASGIApp
    hosts: Hosts
    sessions: Sessions
    guesses: Guesses
    error_page: ErrorPage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit or refuse; every refusal is a page with a sentence."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        began = False

        async def guarded(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                self._dress(request, message)
            await send(message)

        try:
            answer = await self._admit(request)
            if answer is None:
                scope["app"] = self.app  # then the router raises instead of answering 404 and 405 itself
                await self.app(scope, receive, guarded)
                return
        except MeshAIError as error:
            answer = self._answer(request, error)
        except HTTPException as error:
            sentence = "There is no such page." if error.status_code == 404 else "That cannot be done here."
            answer = self.error_page(request, error.status_code, sentence)
        except Exception:  # a bug in one page must not end the connection without a word, nor the daemon
            log.exception("the page %s failed", request.url.path[:80].encode("ascii", "replace").decode())
            answer = self.error_page(request, 500, "This page failed; the log says why.")
        if not began:
            await answer(scope, receive, guarded)

    async def _admit(self, request: Request) -> Response | None:
        """None: go on. A Response: say this instead. Raises RefusedError."""
        if not self.hosts.allow(request.headers.get("host", "")):
            raise RefusedError(421, "This page is not known under that name. Use its IP address, or localhost.")
        if request.method not in ("GET", "HEAD", "POST"):
            raise RefusedError(405, "Only GET and POST are served here.", {"allow": "GET, HEAD, POST"})
        if request.method == "POST":
            self._check_origin(request)
        visitor = self._visitor(request)
        request.scope.setdefault("state", {})["visitor"] = visitor
        path = request.url.path
        if not visitor.is_in and path not in OPEN_PATHS and not path.startswith("/static/"):
            if request.method == "GET" and path not in MACHINE_PATHS:
                return RedirectResponse("/login", 303)
            raise RefusedError(401, "Log in first.", BEARER)
        if request.method == "POST":
            form = await self._form(request)
            if not visitor.by_bearer and not self.sessions.is_csrf(visitor.session, form.get("csrf", "")):
                raise RefusedError(403, "That form is out of date: go back, reload the page and try again.")
            request.scope["state"]["form"] = form
        return None

    @staticmethod
    def _check_origin(request: Request) -> None:
        """A form of another site says so in ``Origin``; a program that is no browser says nothing."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers["host"].lower():
            raise RefusedError(403, "That request came from another site.")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RefusedError(403, "That request came from another site.")

    def _visitor(self, request: Request) -> Visitor:
        given = _cookie(request, self.sessions.cookie)
        session = given or new_id()
        by_bearer = self._bearer(request)
        is_in = by_bearer or not self.sessions.needs_login or (bool(given) and self.sessions.is_open(session))
        return Visitor(session, self.sessions.csrf(session), is_in, is_new=not given, by_bearer=by_bearer)

    def _bearer(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.sessions.needs_login:
            return False
        check_token(self.sessions, self.guesses, request, token.strip())
        return True

    async def _form(self, request: Request) -> dict[str, str]:
        body = await _body(request)
        kind = request.headers.get("content-type", "application/x-www-form-urlencoded")
        if kind.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
            raise RefusedError(415, "Only forms are understood here.")
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise RefusedError(400, "That form cannot be read.") from None
        return dict(pairs)

    def _answer(self, request: Request, error: MeshAIError) -> Response:
        if isinstance(error, RefusedError):
            response = self._refusal(request, error)
            response.headers.update(error.headers)
            return response
        status = 503 if isinstance(error, StorageError) else 400
        return self.error_page(request, status, str(error))

    def _refusal(self, request: Request, error: RefusedError) -> Response:
        if request.url.path in MACHINE_PATHS:
            return PlainTextResponse(f"{error}\n", error.status)
        return self.error_page(request, error.status, str(error))

    def _dress(self, request: Request, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-store")
        visitor: Visitor | None = request.scope.get("state", {}).get("visitor")
        is_page = headers.get("content-type", "").startswith("text/html")
        if visitor is not None and visitor.is_new and is_page and "set-cookie" not in headers:
            headers.append("set-cookie", cookie_header(self.sessions.cookie, visitor.session))


def check_token(sessions: Sessions, guesses: Guesses, request: Request, token: str) -> None:
    """Raises RefusedError for a wrong token, and after too many of them for any."""
    address = request.client.host if request.client else ""
    if wait_s := math.ceil(guesses.wait_s(address)):
        raise RefusedError(429, f"Too many wrong tokens: try again in {wait_s} s.", {"retry-after": str(wait_s)})
    if not sessions.is_token(token):
        guesses.wrong(address)
        log.warning("wrong token for the page from %s", address)
        raise RefusedError(401, "That is not the token.", BEARER)


def cookie_header(name: str, value: str) -> str:
    """Not readable by scripts, never sent along by other sites; gone with the browser."""
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict"


def _cookie(request: Request, name: str) -> str:
    jar: cookies.SimpleCookie = cookies.SimpleCookie()
    try:
        jar.load(request.headers.get("cookie", ""))
    except cookies.CookieError:
        return ""
    morsel = jar.get(name)
    return morsel.value if morsel is not None and is_session_id(morsel.value) else ""


async def _body(request: Request) -> bytes:
    """The whole body; raises RefusedError when it is too big or too slow."""
    length = Headers(scope=request.scope).get("content-length", "0")
    announced = int(length) if length.isascii() and length.isdigit() else 0
    if announced > MOST_DRAINED_BYTES:
        raise RefusedError(413, "That is too much.", {"connection": "close"})
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MOST_DRAINED_BYTES:
                    break
                if size <= MOST_BODY_BYTES:
                    chunks.append(chunk)
    except TimeoutError:
        raise RefusedError(408, "The form did not arrive in time.", {"connection": "close"}) from None
    if size > MOST_BODY_BYTES:
        raise RefusedError(413, "That is too much.", {"connection": "close"})
    return b"".join(chunks)
