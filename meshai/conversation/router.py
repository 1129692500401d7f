"""What a text is: a command, chat, or nothing for us. Pure; only ``!`` makes a command."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

_COMMAND = re.compile(r"!(\?|[^\W\d_][\w-]*)(?:\s+(.*))?\Z", re.DOTALL)


class RouteKind(StrEnum):
    """Where a text goes."""

    COMMAND = "command"
    CHAT = "chat"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Route:
    """The decision: ``word`` (lower case, without "!") and ``text`` its argument, or the chat text."""

    kind: RouteKind
    text: str = ""
    word: str = ""


def route_dm(text: str) -> Route:
    """A direct message: ``!word`` is a command, anything else is chat, what nobody can see is nothing.

    "!!", "!5" and "! wait" are prose: a command is "!" and a word, with nothing between.
    """
    text = text.strip()
    if not _is_visible(text):
        return Route(RouteKind.IGNORE)
    match = _COMMAND.match(text)
    if match is None:
        return Route(RouteKind.CHAT, text)
    return Route(RouteKind.COMMAND, (match[2] or "").strip(), match[1].lower())


def route_channel(text: str, bot_name: str, *, mention_only: bool) -> Route:
    """A message on an opted-in channel: only ``@name`` (or, with mention_only off, anything) is for us."""
    match = re.match(rf"@{re.escape(bot_name)}\b[\s,:]*", text.strip(), re.IGNORECASE)
    if match is not None:
        return route_dm(text.strip()[match.end() :])
    if mention_only:
        return Route(RouteKind.IGNORE)
    route = route_dm(text)
    return Route(RouteKind.IGNORE) if route.kind is RouteKind.COMMAND else route


def _is_visible(text: str) -> bool:
    """Anything but white space, controls and zero-width characters."""
    return any(unicodedata.category(char)[0] not in "CZ" for char in text)
