"""``!admin``: the operator's switches, over the air, for pinned admin keys only."""

from __future__ import annotations

import math
import re
from typing import ClassVar

from meshai.commands.base import Call, Command, Outcome, Reply
from meshai.config.model import NODE_ID
from meshai.ops.humanize import duration
from meshai.storage import nodes
from meshai.storage.database import Transaction
from meshai.storage.totals import totals

_DURATION = re.compile(r"(\d{1,4})\s*([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
USAGE = "admin pause [2h] | resume | block NODE [2h] | unblock NODE | stats"


class Admin(Command):
    """Pause, block, figures."""

    name: ClassVar[str] = "admin"
    usage: ClassVar[str] = "pause [2h]|resume|block NODE [2h]|unblock NODE|stats"
    summary: ClassVar[str] = "for admins: silence, blocks, figures"
    help: ClassVar[str] = f"{USAGE}. Paused, I answer admins only."
    for_admins: ClassVar[bool] = True

    async def run(self, call: Call, tx: Transaction) -> Outcome:
        """One switch, one packet."""
        word, _, rest = call.argument.partition(" ")
        match word.lower():
            case "pause":
                return await self._pause(call, tx, rest)
            case "resume":
                await call.services.pause.end(tx)
                return Reply("I answer everybody again.")
            case "block":
                return await self._block(call, tx, rest)
            case "unblock":
                return await self._unblock(tx, rest)
            case "stats":
                return await self._stats(call, tx)
        return Reply(f"Usage: {USAGE}.")

    async def _pause(self, call: Call, tx: Transaction, rest: str) -> Outcome:
        seconds = _seconds(rest)
        if rest.strip() and seconds is None:
            return Reply("How long? For example: admin pause 2h.")
        await call.services.pause.begin(tx, math.inf if seconds is None else seconds)
        until = "until you resume me" if seconds is None else f"for {duration(seconds)}"
        return Reply(f"Paused {until}: I answer admins only.")

    async def _block(self, call: Call, tx: Transaction, rest: str) -> Outcome:
        node, _, time = rest.strip().partition(" ")
        seconds = _seconds(time)
        if not NODE_ID.match(node.lower()) or (time.strip() and seconds is None):
            return Reply("Whom? For example: admin block !a1b2c3d4 2h.")
        until = None if seconds is None else call.now + seconds
        await nodes.block(tx, node.lower(), now=call.now, until=until, reason=f"admin {call.person.node_id}")
        return Reply(f"Node {node.lower()} gets silence{'' if seconds is None else f' for {duration(seconds)}'}.")

    async def _unblock(self, tx: Transaction, rest: str) -> Outcome:
        node = rest.strip().lower()
        done = NODE_ID.match(node) and await nodes.unblock(tx, node)
        return Reply(f"Node {node[:9]} is heard again." if done else "No such block.")

    async def _stats(self, call: Call, tx: Transaction) -> Outcome:
        services = call.services
        figures = await totals(tx)
        air = services.airtime()
        return Reply(
            f"up {duration(services.clock.monotonic() - services.started_at)}; {figures['conversations']} people, "
            f"{figures['messages']} messages; queue {services.queue_length()}; air {air['used_percent']:.2f} of "
            f"{air['budget_percent']:g} %; link {services.link.state}."
        )


def _seconds(text: str) -> int | None:
    match = _DURATION.fullmatch(text.strip().lower())
    return int(match[1]) * _UNIT_S[match[2]] if match else None
