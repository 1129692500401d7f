"""Where the answer to a question goes: always to the key that asked (DESIGN §3 Identity)."""

from __future__ import annotations

from meshai.delivery.outbox import Address
from meshai.inbox import Question


def address(question: Question) -> Address:
    """The person's DM, or the channel for somebody whose key is unknown."""
    channel = question.channel.index if question.channel is not None else None
    return Address(question.person.node_id, question.person.public_key, channel)
