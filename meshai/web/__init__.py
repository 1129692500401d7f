"""The operator's page: what the daemon knows, and the few switches an operator needs (extra ``web``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from meshai.errors import MissingError

if TYPE_CHECKING:
    from meshai.config.model import Web
    from meshai.daemon import Daemon
    from meshai.web.server import WebServer

HOW = "web.enabled needs packages that are not installed ({lacking}): pip install 'meshai[web]'"


def require() -> None:
    """Raises MissingError when the extra is not installed."""
    try:
        import h11  # noqa: F401
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingError(HOW.format(lacking=error.name)) from None


def page(daemon: Daemon, web: Web, *, secrets: Iterable[str], unwell: Callable[[], str]) -> WebServer:
    """The web server, not started yet. ``secrets`` never appear on it; ``unwell`` says why the daemon is."""
    from meshai.web.server import WebServer

    return WebServer(daemon, web, secrets=secrets, unwell=unwell)
