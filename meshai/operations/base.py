"""What an operation is: JSON in, JSON out, and word of how far it got."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from meshai.config.model import NODE_ID
from meshai.errors import UsageError
from meshai.storage import conversations
from meshai.storage.conversations import Conversation
from meshai.storage.database import Queries

Report = Callable[[int, int, str], None]
"""How far it is: steps done, steps in all, what is being done."""
Operation = Callable[[Mapping[str, Any], Report], Awaitable[object]]


def silent(_done: int, _total: int, _what: str) -> None:
    """A Report nobody reads."""


def node_argument(value: object) -> str:
    """A node id as typed by the operator; raises UsageError."""
    text = str(value or "").lower()
    if not NODE_ID.match(text):
        raise UsageError(f"a node id looks like '!a1b2c3d4' (in quotes, for the shell), not {text!r}")
    return text


async def chosen(q: Queries, value: object) -> list[Conversation]:
    """The conversations an operator means: of a node, or one by its key (``dm:!a1b2c3d4#…``, ``ch:name``)."""
    text = str(value or "").strip()
    if text.startswith(("dm:", "ch:")):
        one = await conversations.by_key(q, text)
        found = [one] if one is not None else []
    else:
        found = await conversations.of_node(q, node_argument(text))
    if not found:
        raise UsageError(f"there is no conversation of {text}")
    return found
