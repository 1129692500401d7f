"""Who is talking: a person is a public key, never a node number (DESIGN §3 Identity).

The first key a node shows gets the node's conversation. Any other key of that node is a different person with a
conversation of its own, until the operator accepts it. A number without a key has memory by its number only where
``access.require_pki`` is off, and no key ever inherits that conversation. A conversation the operator imported without
its key belongs to whom its node is at first contact, as any conversation does.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from meshai.errors import UsageError
from meshai.storage import conversations, identities, nodes
from meshai.storage.database import Queries, Transaction
from meshai.storage.identities import IdentityRow

log = logging.getLogger(__name__)

EXPECT_S = 1800.0
"""For so long after ``identity accept`` the next new key of a node is its owner's: NodeInfo may be that late."""


class Standing(StrEnum):
    """How far the bot knows a person."""

    KNOWN = "known"  # the node's own key: pinned at first contact, or accepted
    STRANGER = "stranger"  # a different key for a node that has one
    NUMBER = "number"  # no key; the node never showed one
    STATELESS = "stateless"  # no key although the node has shown one: nothing is remembered


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody the bot talks to. ``conv_id`` None: answered without memory."""

    node_id: str
    public_key: bytes | None
    conv_id: int | None
    standing: Standing
    name: str = ""  # as its node calls itself: data, not to be trusted

    @property
    def has_memory(self) -> bool:
        """Whether a conversation belongs to this person."""
        return self.conv_id is not None


def fingerprint(public_key: bytes) -> str:
    """Eight hex digits of the key's SHA-256: enough to compare by eye, and part of a conversation key."""
    return hashlib.sha256(public_key).hexdigest()[:8]


async def identify(
    tx: Transaction, node_id: str, public_key: bytes | None, *, now: float, pinned: bytes | None = None, name: str = ""
) -> Person:
    """The person behind a DM, made known at first sight.

    ``public_key`` is the key the own node verified, None for an unauthenticated DM. ``pinned`` is the key
    ``access.admins`` names for this node, which counts as seen first.
    """
    rows = await identities.of_node(tx, node_id)
    if public_key is None:
        return await _by_number(tx, node_id, known_keys=bool(rows) or pinned is not None, now=now, name=name)
    row = next((row for row in rows if row.public_key == public_key), None)
    current = current_key(rows, pinned)
    if row is None:
        row = await _first_sight(tx, node_id, public_key, is_second=current not in (None, public_key), now=now)
        mark = fingerprint(public_key)
        if pinned is None and await identities.take_expected(tx, node_id, mark, now=now, within_s=EXPECT_S):
            await accept(tx, node_id, mark, now=now)
            return await identify(tx, node_id, public_key, now=now, name=name)
    elif row.revoked_at is not None:
        row = await _apart_from_successor(tx, row, rows, now=now)
    standing = Standing.KNOWN if current in (None, public_key) else Standing.STRANGER
    return Person(node_id, public_key, row.conv_id, standing, name)


def current_key(rows: Sequence[IdentityRow], pinned: bytes | None = None) -> bytes | None:
    """The key that stands for a node: the configured one, else the last accepted, else the first seen."""
    if pinned is not None:
        return pinned
    valid = [row for row in rows if row.revoked_at is None]
    accepted = [row for row in valid if row.accepted_at is not None]
    if accepted:
        return max(accepted, key=lambda row: row.accepted_at or 0.0).public_key
    return valid[0].public_key if valid else None


def pinned_admin_key(admins: Sequence[str], node_id: str) -> bytes | None:
    """The key ``access.admins`` gives for a node, None when it names the node alone or not at all."""
    for entry in admins:
        number, _, key = entry.partition(" ")
        if number == node_id and key:
            return base64.b64decode(key)
    return None


def is_admin(admins: Sequence[str], person: Person) -> bool:
    """Admin rights belong to a key: the configured one, else the one pinned at first contact."""
    if person.public_key is None or person.standing is not Standing.KNOWN:
        return False
    for entry in admins:
        number, _, key = entry.partition(" ")
        if number == person.node_id:
            return not key or base64.b64decode(key) == person.public_key
    return False


async def accept(tx: Transaction, node_id: str, wanted: str = "", *, now: float) -> tuple[bytes | None, bytes | None]:
    """Join a changed key to its node's conversation; returns the new key and the one it replaces.

    ``wanted`` is the beginning of a fingerprint, needed only when several keys wait. The old key is revoked, the
    stranger's own conversation stays archived and closed. A reset node cannot show its key before the radio has
    forgotten the old one (protocol.md §9.5): after a key alarm its next key is joined, and the new key is None here.
    Raises UsageError when there is nothing to accept.
    """
    rows = await identities.of_node(tx, node_id)
    old = current_key(rows)
    waiting = [row for row in rows if row.public_key != old]
    wanted = wanted.lower().replace(":", "")
    if wanted:
        waiting = [row for row in waiting if fingerprint(row.public_key).startswith(wanted)]
    if not waiting and await nodes.has_key_alarm(tx, node_id):
        await identities.expect(tx, node_id, wanted, until=now + EXPECT_S)
        log.warning("%s: its next key is accepted by the operator", node_id)
        return None, old
    if not waiting:
        raise UsageError(f"{node_id} has no key waiting to be accepted")
    if len(waiting) > 1:
        choices = ", ".join(fingerprint(row.public_key) for row in waiting)
        raise UsageError(f"{node_id} has shown several keys: name one of {choices}")
    new = waiting[0]
    home = next((row.conv_id for row in rows if row.public_key == old), new.conv_id)
    await identities.accept(tx, node_id, new.public_key, now=now)
    if new.conv_id != home:
        await tx.execute("UPDATE conversations SET closed_at = ? WHERE id = ?", (now, new.conv_id))
        await identities.point_to(tx, node_id, new.public_key, home)
    await nodes.clear_key_alarm(tx, node_id)
    log.warning("%s: key %s accepted by the operator", node_id, fingerprint(new.public_key))
    return new.public_key, old


async def has_key(q: Queries, node_id: str) -> bool:
    """Whether a node has ever shown a key."""
    return bool(await identities.of_node(q, node_id))


async def _by_number(tx: Transaction, node_id: str, *, known_keys: bool, now: float, name: str) -> Person:
    if known_keys:
        return Person(node_id, None, None, Standing.STATELESS, name)
    conversation = await conversations.get_or_create(
        tx, conversations.dm_key(node_id), kind="dm", node_id=node_id, now=now
    )
    await identities.take_awaited(tx, node_id)  # what is said by number alone no key may inherit
    return Person(node_id, None, conversation.id, Standing.NUMBER, name)


async def _first_sight(tx: Transaction, node_id: str, public_key: bytes, *, is_second: bool, now: float) -> IdentityRow:
    taken = await conversations.by_key(tx, conversations.dm_key(node_id)) is not None
    if taken and not is_second and await identities.take_awaited(tx, node_id):
        taken = False  # imported by the operator: it is the node's own since before there were keys
    key = conversations.dm_key(node_id, public_key, second=is_second or taken)
    conversation = await conversations.get_or_create(tx, key, kind="dm", node_id=node_id, now=now)
    await identities.insert(tx, node_id, public_key, conversation.id, now=now)
    if is_second:
        log.warning(
            "%s shows a new key %s: treated as a different person. If its owner confirms the change: "
            "meshai identity accept '%s' %s",
            node_id, fingerprint(public_key), node_id, fingerprint(public_key),
        )  # fmt: skip
    return IdentityRow(node_id, public_key, conversation.id, now, None, None)


async def _apart_from_successor(
    tx: Transaction, row: IdentityRow, rows: Sequence[IdentityRow], *, now: float
) -> IdentityRow:
    """A revoked key that speaks again must not read what its successor wrote."""
    if not any(other.conv_id == row.conv_id and other.public_key != row.public_key for other in rows):
        return row
    key = conversations.dm_key(row.node_id, row.public_key, second=True)
    conversation = await conversations.get_or_create(tx, key, kind="dm", node_id=row.node_id, now=now)
    await identities.point_to(tx, row.node_id, row.public_key, conversation.id)
    return IdentityRow(row.node_id, row.public_key, conversation.id, row.first_seen, row.accepted_at, row.revoked_at)
