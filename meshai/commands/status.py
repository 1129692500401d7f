"""``!status``: uptime, model, memory, queue, own airtime, in one packet."""

from __future__ import annotations

from typing import ClassVar

from meshai import __version__
from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.ops.humanize import duration
from meshai.storage import messages
from meshai.storage.database import Transaction


class Status(Command):
    """How the bot is doing."""

    name: ClassVar[str] = "status"
    summary: ClassVar[str] = "uptime, model, memory, queue, own airtime"
    help: ClassVar[str] = (
        "status tells how long I am up, which model answers, how many messages of yours I use, how many questions "
        "wait, and my share of the air in the last hour."
    )

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """Collect the facts; each is short."""
        services = call.services
        facts = [
            f"MeshAI {__version__} up {duration(services.clock.monotonic() - services.started_at)}",
            f"model {services.model.label[:40]}",
        ]
        if call.person.conv_id is not None:
            facts.append(f"memory {await messages.count_epoch(tx, call.person.conv_id)} messages")
        facts.append(f"queue {services.queue_length()}")
        facts.append(f"air {services.airtime()['used_percent']:.1f} % of the last hour")
        warning = _warning(call)
        return Reply("; ".join(facts) + "." + (f" {warning}" if warning else ""))


def _warning(call: Call) -> str:
    node = call.services.link.node
    if node is not None and node.licensed and call.services.settings().access.require_pki:
        return "WARNING: my node is in ham mode and gets no PKI DMs; see access.require_pki."
    return ""
