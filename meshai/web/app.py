"""The routes. The guard stands around all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from meshai.web import actions, metrics, views
from meshai.web.access import Hosts
from meshai.web.guard import Guard
from meshai.web.render import static_files
from meshai.web.site import Site

Handler = Callable[[Site, Request], Awaitable[Response]]

READ: dict[str, Handler] = {
    "/": views.overview,
    "/nodes": views.nodes,
    "/nodes/{node}": views.node,
    "/nodes/{node}/forget": views.forget,
    "/conversations": views.talks,
    "/conversations/{conversation}": views.talk,
    "/conversations/{conversation}/memory": views.memory,
    "/answers/{answer}": views.answer,
    "/calls": views.model_calls,
    "/calls/{call}": views.model_call,
    "/log": views.log_tail,
    "/login": actions.log_in,
}
DO: dict[str, Handler] = {
    "/login": actions.log_in,
    "/logout": actions.log_out,
    "/pause": actions.pause,
    "/resume": actions.resume,
    "/nodes/{node}/block": actions.block,
    "/nodes/{node}/unblock": actions.unblock,
    "/nodes/{node}/accept": actions.accept,
    "/nodes/{node}/forget": actions.forget,
    "/conversations/{conversation}/compact": actions.compact,
    "/answers/{answer}/again": actions.again,
}
KEPT = {"cache-control": "private, max-age=86400"}
"""Static files carry a tag of their content in their address."""


def build(site: Site, hosts: Hosts) -> ASGIApp:
    """The whole page as one ASGI application."""
    files = static_files()

    async def static(request: Request) -> Response:
        content, kind = files.get(request.path_params["name"], (b"", ""))
        if not kind:
            raise HTTPException(404)
        return Response(content, media_type=kind, headers=KEPT)

    routes = [
        Route("/static/{name}", static),
        Route("/health", partial(_health, site)),
        Route("/metrics", partial(_metrics, site)),
        Route("/live", partial(_live, site)),
        *(Route(path, partial(handler, site), methods=["GET"]) for path, handler in READ.items()),
        *(Route(path, partial(handler, site), methods=["POST"]) for path, handler in DO.items()),
    ]

    app = Router(routes, redirect_slashes=False)
    return Guard(app, hosts, site.sessions, site.guesses, site.error)


async def _health(site: Site, request: Request) -> Response:
    """Open to everybody, so it says only whether; the reason is on the overview."""
    del request
    is_well = site.daemon.health.judge().feed
    return PlainTextResponse("ok\n" if is_well else "unwell\n", 200 if is_well else 503)


async def _metrics(site: Site, request: Request) -> Response:
    del request
    return Response(await metrics.exposition(site), headers={"content-type": metrics.CONTENT_TYPE})


async def _live(site: Site, request: Request) -> Response:
    del request
    if not site.live.has_room():
        return PlainTextResponse("too many watch already\n", 503, {"retry-after": "60"})
    return StreamingResponse(site.live.events(), media_type="text/event-stream")
