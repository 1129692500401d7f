"""The keys of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshai import identity
from meshai.clock import Clock
from meshai.config.model import Settings
from meshai.operations.base import Operation, Report, node_argument
from meshai.storage import identities
from meshai.storage.database import Database


class IdentityOperations:
    """List and accept keys."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        *,
        settings: Callable[[], Settings],
        accepted: Callable[[str], None] = lambda _node_id: None,
    ) -> None:
        """``accepted`` is told of a node whose new key was accepted: the radio must forget the old one."""
        self._db = db
        self._clock = clock
        self._settings = settings
        self._accepted = accepted

    def table(self) -> dict[str, Operation]:
        """Name → operation."""
        return {"identity.list": self.identity_list, "identity.accept": self.identity_accept}

    async def identity_list(self, _args: Mapping[str, Any], _report: Report) -> list[dict[str, object]]:
        """Every key of every node: fingerprint, standing, when first seen."""
        rows = await identities.every(self._db)
        admins = self._settings().access.admins
        current = {
            node: identity.current_key(
                [row for row in rows if row.node_id == node], identity.pinned_admin_key(admins, node)
            )
            for node in {row.node_id for row in rows}
        }
        return [
            {
                "node_id": row.node_id,
                "fingerprint": identity.fingerprint(row.public_key),
                "standing": "revoked" if row.revoked_at else _standing(row.public_key == current[row.node_id]),
                "first_seen": row.first_seen,
                "accepted_at": row.accepted_at,
            }
            for row in rows
        ]

    async def identity_accept(self, args: Mapping[str, Any], _report: Report) -> dict[str, str]:
        """Join a changed key to its node's conversation; raises UsageError when there is nothing to accept.

        ``fingerprint`` is empty for a reset node: the key it shows next is joined, once the radio forgot the old one.
        """
        node_id = node_argument(args.get("node"))
        new, old = await self._db.transaction(
            lambda tx: identity.accept(tx, node_id, str(args.get("fingerprint") or ""), now=self._clock.now())
        )
        self._accepted(node_id)
        return {
            "node_id": node_id,
            "fingerprint": identity.fingerprint(new) if new else "",
            "replaced": identity.fingerprint(old) if old else "",
        }


def _standing(is_current: bool) -> str:
    return "known" if is_current else "waiting"
