"""What the operator can do: each is a POST that ends in a sentence on the page it came from."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from meshai.delivery.outbox import Address
from meshai.errors import MeshAIError, UsageError
from meshai.operations.base import silent
from meshai.storage import answers, nodes
from meshai.storage.database import Transaction
from meshai.web.guard import RefusedError, Visitor, check_token, cookie_header
from meshai.web.site import Site, not_found, number_in
from meshai.web.views import node_in

log = logging.getLogger(__name__)


async def log_in(site: Site, request: Request) -> Response:
    """Ask for the token; a right one opens a session under a new id."""
    visitor: Visitor = request.state.visitor
    if request.method != "POST":
        return RedirectResponse("/", 303) if visitor.is_in else await site.page(request, "login.html", wrong="")
    if not site.sessions.needs_login:
        return RedirectResponse("/", 303)
    try:
        check_token(site.sessions, site.guesses, request, request.state.form.get("token", ""))
    except RefusedError as error:
        answer = site.html(request, error.status, "login.html", wrong=str(error))
        answer.headers.update(error.headers)
        return answer
    response = RedirectResponse("/", 303)
    response.headers.append("set-cookie", cookie_header(site.sessions.cookie, site.sessions.open()))
    log.info("somebody at %s logged in to the page", request.client.host if request.client else "?")
    return response


async def log_out(site: Site, request: Request) -> Response:
    """End the session."""
    site.sessions.close(request.state.visitor.session)
    return RedirectResponse("/login", 303)


async def pause(site: Site, request: Request) -> Response:
    """Answer admins only, until resumed."""
    await site.daemon.db.transaction(site.daemon.pause.begin)
    return _done(site, request, "/", "Paused: only admins are answered.")


async def resume(site: Site, request: Request) -> Response:
    """Answer everybody again."""
    await site.daemon.db.transaction(site.daemon.pause.end)
    return _done(site, request, "/", "Everybody is answered again.")


async def block(site: Site, request: Request) -> Response:
    """Answer a node no more."""
    node_id = node_in(request)
    now = site.clock.now()
    await site.daemon.db.transaction(lambda tx: nodes.block(tx, node_id, now=now, until=None, reason="page"))
    return _done(site, request, f"/nodes/{node_id}", f"{node_id} gets silence.")


async def unblock(site: Site, request: Request) -> Response:
    """Answer a node again."""
    node_id = node_in(request)
    ended = await site.daemon.db.transaction(lambda tx: nodes.unblock(tx, node_id))
    return _done(site, request, f"/nodes/{node_id}", f"{node_id} is heard again." if ended else "It was not blocked.")


async def accept(site: Site, request: Request) -> Response:
    """The operator vouches for a key that waits."""
    node_id = node_in(request)
    args = {"node": node_id, "fingerprint": request.state.form.get("fingerprint", "")}
    if not args["fingerprint"]:
        raise UsageError("Which key? The form names none.")
    try:
        await site.daemon.operations["identity.accept"](args, silent)
    except UsageError as error:
        return _done(site, request, f"/nodes/{node_id}", str(error), is_bad=True)
    return _done(site, request, f"/nodes/{node_id}", f"The key {args['fingerprint']} of {node_id} is accepted.")


async def forget(site: Site, request: Request) -> Response:
    """Erase everything of a node, when its id was typed."""
    node_id = node_in(request)
    if request.state.form.get("typed", "").strip().lower() != node_id:
        said = "Nothing was erased: type the node's id to confirm."
        return _done(site, request, f"/nodes/{node_id}/forget", said, is_bad=True)
    result = await site.daemon.operations["memory.forget"]({"node": node_id}, silent)
    count = result["messages"] if isinstance(result, dict) else 0
    return _done(site, request, f"/nodes/{node_id}", f"Everything of {node_id} is erased: {count} messages.")


async def compact(site: Site, request: Request) -> Response:
    """Summarise the older part of a conversation now."""
    conv_id = number_in(request, "conversation", of_path=True)
    if await site.reader.fetch_value("SELECT 1 FROM conversations WHERE id = ?", (conv_id,)) is None:
        raise not_found()
    said = await site.daemon.memory.compact_now(conv_id)
    return _done(site, request, f"/conversations/{conv_id}/memory", said)


async def again(site: Site, request: Request) -> Response:
    """Send an answer's stored parts once more under new ids."""
    answer_id = number_in(request, "answer", of_path=True)

    async def repeat(tx: Transaction) -> int:
        row = await answers.get(tx, answer_id)
        if row is None:
            raise not_found()
        latest = await answers.latest(tx, row.node_id, row.public_key)
        if latest is None or latest.id != row.id:
            raise UsageError("Only the newest answer to a person can be sent again.")
        sent = await site.daemon.outbox.again(tx, Address(row.node_id, row.public_key))
        return len(sent.parts) if sent is not None else 0

    place = f"/answers/{answer_id}"
    try:
        count = await site.daemon.db.transaction(repeat)
    except MeshAIError as error:
        return _done(site, request, place, str(error), is_bad=True)
    said = f"{count} packet{'s' if count != 1 else ''} queued." if count else "It is on its way already."
    return _done(site, request, place, said)


def _done(site: Site, request: Request, place: str, said: str, *, is_bad: bool = False) -> Response:
    site.sessions.say(request.state.visitor.session, said, is_bad=is_bad)
    return RedirectResponse(place, 303)
