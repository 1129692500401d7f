"""Raw messages as the model sees them: who speaks, how long ago, long dumps masked.

Pure and stable: the same rows always render to the same bytes, or the server's prefix cache is lost (P4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshai.llm.base import ChatMessage
from meshai.memory.tokens import PER_MESSAGE, Measure, cut_middle
from meshai.storage.messages import StoredMessage

GAP_S = 3600.0
"""A pause from which on the model is told of it."""
EPOCH_2020 = 1_577_836_800.0
"""A Pi without a clock starts in 1970: pauses from before this are not believed."""
LONGEST_GAP_S = 3 * 365 * 86400.0
DUMP_BYTES = 400
"""Shorter texts are never taken for a dump."""

_WORDS = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Shown:
    """A row and what it becomes in a prompt, without what its neighbours add."""

    row: StoredMessage
    text: str
    tokens: int


def show(rows: Sequence[StoredMessage], measure: Measure, *, named: bool, most_tokens: int) -> list[Shown]:
    """Each row's text; ``named`` puts the speaker first (channels), none is longer than ``most_tokens``."""
    shown: list[Shown] = []
    before: StoredMessage | None = None
    for row in rows:
        text = masked(row)
        if named and row.role == "user":
            text = f"{_name(row)}: {text}"
        if row.role == "user" and before is not None:
            text = pause(before.created_at, row.created_at) + text
        text = cut_middle(text, most_tokens, measure)
        shown.append(Shown(row, text, measure(text) + PER_MESSAGE))
        before = row
    return shown


def to_messages(shown: Sequence[Shown]) -> list[ChatMessage]:
    """Alternating messages that begin with the user: neighbours of one role become one."""
    result: list[ChatMessage] = []
    for one in shown:
        role = "assistant" if one.row.role == "assistant" else "user"
        if not result and role == "assistant":
            result.append(ChatMessage("user", "[…]"))
        if result and result[-1].role == role:
            result[-1] = ChatMessage(result[-1].role, f"{result[-1].content}\n{one.text}")
        else:
            result.append(ChatMessage(role, one.text))  # type: ignore[arg-type]
    return result


def masked(row: StoredMessage) -> str:
    """The text, or a placeholder when it is a long dump and not talk (S2-8, S2-20); the archive keeps all of it."""
    if not is_dump(row.content):
        return row.content
    head = " ".join(row.content.split())[:60]
    return f"{head} … [archived #{row.id}]"


def is_dump(text: str) -> bool:
    """Long output that is not prose: logs, tables, JSON, hex. Prose in any script has words, a dump has signs."""
    if len(text.encode("utf-8", "replace")) < DUMP_BYTES:
        return False
    visible = sum(not character.isspace() for character in text)
    letters = sum(len(word) for word in _WORDS.findall(text))
    longest = max((len(word) for word in text.split()), default=0)
    return letters < 0.6 * visible or (longest > 200 and text.isascii())


def pause(before: float, after: float) -> str:
    """``[3 h later] `` when the pause is worth telling and the clock can be believed; else nothing."""
    gap = after - before
    if gap < GAP_S or gap > LONGEST_GAP_S or before < EPOCH_2020:
        return ""
    if gap < 48 * 3600:
        return f"[{gap / 3600:.0f} h later] "
    return f"[{gap / 86400:.0f} days later] "


def _name(row: StoredMessage) -> str:
    return " ".join(row.sender_name.replace(":", " ").split()) or row.sender or "someone"
