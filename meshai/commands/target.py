"""Where the answer to a question goes: always to the key that asked (DESIGN §3 Identity)."""

from __future__ import annotations

from meshai.delivery.outbox import Address
from meshai.inbox import Question


def address(question: Question) -> Address:
    """The person's DM; the channel only for a question from there by somebody whose key is unknown."""
    person = question.person
    if question.channel is not None and person.public_key is None:
        return Address(person.node_id, None, question.channel.index)
    return Address(person.node_id, person.public_key)


def threads_on(question: Question) -> int | None:
    """The packet an answer refers to; a DM cannot refer to a channel's message."""
    if question.channel is not None and question.person.public_key is not None:
        return None
    return question.packet_id
