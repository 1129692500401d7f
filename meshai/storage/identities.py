"""Queries on ``identities``: which public key belongs to which node and conversation."""

from __future__ import annotations

from dataclasses import dataclass

from meshai.storage.database import Queries, Transaction


@dataclass(frozen=True, slots=True)
class IdentityRow:
    """One row of ``identities``."""

    node_id: str
    public_key: bytes
    conv_id: int
    first_seen: float
    accepted_at: float | None
    revoked_at: float | None


_COLUMNS = ", ".join(IdentityRow.__dataclass_fields__)


async def of_node(q: Queries, node_id: str) -> list[IdentityRow]:
    """Every key a node has shown, the first seen first."""
    rows = await q.fetch_all(
        f"SELECT {_COLUMNS} FROM identities WHERE node_id = ? ORDER BY rowid",
        (node_id,),
    )
    return [IdentityRow(*row) for row in rows]


async def every(q: Queries) -> list[IdentityRow]:
    """Every key of every node."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM identities ORDER BY node_id, rowid")
    return [IdentityRow(*row) for row in rows]


async def insert(tx: Transaction, node_id: str, public_key: bytes, conv_id: int, *, now: float) -> None:
    """Store a key at its first sight."""
    await tx.execute(
        "INSERT INTO identities (node_id, public_key, conv_id, first_seen) VALUES (?, ?, ?, ?)",
        (node_id, public_key, conv_id, now),
    )


async def restore(tx: Transaction, row: IdentityRow) -> None:
    """Take a key over from an export; one that is here already stays as it is."""
    await tx.execute(
        f"INSERT INTO identities ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (row.node_id, row.public_key, row.conv_id, row.first_seen, row.accepted_at, row.revoked_at),
    )


async def of_conversation(q: Queries, conv_id: int) -> list[IdentityRow]:
    """The keys a conversation belongs to, the first seen first."""
    rows = await q.fetch_all(f"SELECT {_COLUMNS} FROM identities WHERE conv_id = ? ORDER BY rowid", (conv_id,))
    return [IdentityRow(*row) for row in rows]


async def await_owner(tx: Transaction, node_id: str) -> None:
    """The operator imported this node's conversation without a key: whoever is the node at first contact owns it."""
    await tx.execute("INSERT INTO meta (key, value) VALUES (?, '') ON CONFLICT (key) DO NOTHING", (_awaited(node_id),))


async def take_awaited(tx: Transaction, node_id: str) -> bool:
    """Whether the node's conversation was imported and nobody has spoken in it since, which is told once."""
    return bool(await tx.execute("DELETE FROM meta WHERE key = ?", (_awaited(node_id),)))


def _awaited(node_id: str) -> str:
    return f"imported, owner not seen {node_id}"


async def point_to(tx: Transaction, node_id: str, public_key: bytes, conv_id: int) -> None:
    """Give a key another conversation."""
    await tx.execute(
        "UPDATE identities SET conv_id = ? WHERE node_id = ? AND public_key = ?", (conv_id, node_id, public_key)
    )


async def accept(tx: Transaction, node_id: str, public_key: bytes, *, now: float) -> None:
    """The operator vouches for this key; every other key of the node is revoked."""
    await tx.execute(
        "UPDATE identities SET revoked_at = ? WHERE node_id = ? AND public_key <> ? AND revoked_at IS NULL",
        (now, node_id, public_key),
    )
    await tx.execute(
        "UPDATE identities SET accepted_at = ?, revoked_at = NULL WHERE node_id = ? AND public_key = ?",
        (now, node_id, public_key),
    )


async def expect(tx: Transaction, node_id: str, fingerprint: str, *, until: float) -> None:
    """The operator vouches for the next new key of a node, or the one whose fingerprint begins like this."""
    await tx.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (f"expected key {node_id}", f"{until} {fingerprint}"),
    )


async def take_expected(tx: Transaction, node_id: str, fingerprint: str, *, now: float, within_s: float) -> bool:
    """Whether this new key is the expected one, which happens once; ``within_s`` bounds a clock that went back."""
    value = await tx.fetch_value("SELECT value FROM meta WHERE key = ?", (f"expected key {node_id}",))
    if value is None:
        return False
    until, _, beginning = str(value).partition(" ")
    if not now <= float(until) <= now + within_s or not fingerprint.startswith(beginning):
        return False
    await tx.execute("DELETE FROM meta WHERE key = ?", (f"expected key {node_id}",))
    return True
