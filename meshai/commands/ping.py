"""``!ping``: a link report, of the packet just received and of what arrived at the caller so far."""

from __future__ import annotations

from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.storage import delivery_counts
from meshai.storage.database import Transaction


class Ping(Command):
    """Signal, hops, and how well the bot reaches the caller."""

    name: ClassVar[str] = "ping"
    summary: ClassVar[str] = "signal, hops, how well the bot reaches you"
    help: ClassVar[str] = (
        "ping reports how your message reached me: hops, SNR and RSSI of the last hop; and how many of my parts "
        "your node has confirmed."
    )

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Report the question's own packet."""
        question = call.question
        facts = [_distance(question.hops)]
        if question.snr is not None:
            facts.append(f"SNR {question.snr:g} dB")
        if question.rssi is not None:
            facts.append(f"RSSI {question.rssi} dBm")
        report = f"pong: heard you {', '.join(facts)}."
        delivered, known = await delivery_counts.recent_rate(tx, call.person.node_id)
        if known:
            report += f" To you: {delivered} of my last {known} parts arrived."
        return Reply(report)


def _distance(hops: int | None) -> str:
    if hops is None:
        return "over an unknown number of hops"
    if hops == 0:
        return "directly"
    return f"over {hops} hop{'s' if hops > 1 else ''}"
