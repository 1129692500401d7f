"""From packet to stored question: validate, drop duplicates, identify, store. One commit before anything else.

What is not for us ends here in silence and without a model call (DESIGN §3 item 2): own packets, duplicates,
broadcasts on channels not opted in, tapbacks nobody asked for, empty or undecodable text, MQTT traffic unless
allowed, blocked nodes, DMs the node did not authenticate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from meshai import identity
from meshai.clock import Clock
from meshai.config.model import ChannelEntry, Settings
from meshai.conversation.router import Route, RouteKind, route_channel, route_dm
from meshai.identity import Person
from meshai.radio.link import Channel, Decoding, Inbound, LinkState, NodeInfo, Peer
from meshai.storage import conversations, identities, inbound, messages, nodes
from meshai.storage.database import Database, Transaction

log = logging.getLogger(__name__)

STALE_S = 600.0
"""A question older than ten minutes is not answered any more (DESIGN §3 States)."""
CLOCK_SKEW_LIMIT_S = 48 * 3600.0
"""A node clock further off than this is no clock (field.md B.1: mmrelay bounds it alike)."""
AWAY_SLACK_S = 60.0
"""A loss is noticed late: by so much a packet may be older than the absence we measured."""


@dataclass(frozen=True, slots=True)
class Question:
    """A stored text that wants an answer, a command's reply, or a decision."""

    inbound_id: int
    person: Person
    route: Route
    packet_id: int
    message_id: int | None  # its row in the archive; None for people without memory
    received_at: float
    hops: int | None = None
    snr: float | None = None
    rssi: int | None = None
    reply_id: int | None = None
    channel: Channel | None = None  # None: a direct message
    expired: bool = False  # too old to be answered; ``offline_since`` tells since when we were away
    is_tapback: bool = False
    brief: bool = False  # one part: it may come from another bot


@dataclass(slots=True)
class Counters:
    """What was dropped and why, for ``status``; since the start of the process."""

    dropped: dict[str, int] = field(default_factory=dict)

    def add(self, why: str) -> None:
        """Count one."""
        self.dropped[why] = self.dropped.get(why, 0) + 1


class Inbox:
    """Turns ``Inbound`` packets into stored ``Question`` values."""

    def __init__(
        self,
        db: Database,
        settings: Callable[[], Settings],
        clock: Clock,
        *,
        node: Callable[[], NodeInfo | None],
        peer: Callable[[int], Peer | None],
        away_s: float | None = None,
    ) -> None:
        """``away_s``: how long no daemon listened before this one started, None when nobody knows."""
        self._db = db
        self._settings = settings
        self._clock = clock
        self._node = node
        self._peer = peer
        self._skew_s = 0.0
        self._down_since: float | None = None
        self.away_s = away_s
        self._was_up = False
        self.counters = Counters()

    def on_link(self, state: LinkState) -> None:
        """Remember how long the node was away: it bounds the age of what it queued meanwhile."""
        if state is LinkState.UP:
            self._was_up = True
            if self._down_since is not None:
                self.away_s = self._clock.monotonic() - self._down_since
            self._down_since = None
        elif self._down_since is None and self._was_up:
            self._down_since = self._clock.monotonic()

    async def accept(self, packet: Inbound) -> Question | None:
        """Store one packet; None when nothing is to be done about it. Raises StorageError."""
        why = self._unwanted(packet)
        if why:
            self._drop(packet, why)
            return None
        if not packet.backlog:
            self._learn_skew(packet)
        route, channel = self._route(packet)
        if route.kind is RouteKind.IGNORE and not packet.is_tapback and packet.decoding is not Decoding.ENCRYPTED:
            self._drop(packet, "not for us")
            return None
        return await self._db.transaction(lambda tx: self._store(tx, packet, route, channel))

    def _unwanted(self, packet: Inbound) -> str:
        settings, node = self._settings(), self._node()
        if packet.from_num == 0 or (node is not None and packet.from_num == node.num):
            return "own packet"
        if packet.via_mqtt and not settings.access.via_mqtt:
            return "via MQTT"
        if packet.sender_id in settings.access.block:
            return "blocked"
        if settings.access.allow and packet.sender_id not in settings.access.allow:
            return "not on the allow list"
        if packet.decoding is Decoding.BAD_UTF8:
            return "not UTF-8"
        if packet.decoding is Decoding.ENCRYPTED and not packet.is_dm:
            return "undecodable broadcast"
        if not packet.is_dm and self._opted_in(packet) is None:
            return "broadcast"
        return ""

    def _opted_in(self, packet: Inbound) -> ChannelEntry | None:
        for entry in self._settings().channels:
            if entry.name == packet.channel_name and (entry.i_know_this_is_public or not self._is_public(packet)):
                return entry
        return None

    def _is_public(self, packet: Inbound) -> bool:
        channel = self._channel(packet)
        return channel is None or channel.has_default_key

    def _channel(self, packet: Inbound) -> Channel | None:
        node = self._node()
        return next((c for c in node.channels if c.index == packet.channel_index), None) if node else None

    def _route(self, packet: Inbound) -> tuple[Route, Channel | None]:
        if packet.is_dm:
            return route_dm(packet.text), None
        entry = self._opted_in(packet)
        route = route_channel(packet.text, self._settings().bot.name, mention_only=entry is None or entry.mention_only)
        return route, self._channel(packet)

    async def _store(self, tx: Transaction, packet: Inbound, route: Route, channel: Channel | None) -> Question | None:
        now = self._clock.now()
        if await inbound.is_duplicate(tx, packet.sender_id, packet.packet_id, now=now):
            self._drop(packet, "duplicate")
            return None
        if await nodes.is_blocked(tx, packet.sender_id, now=now):
            self._drop(packet, "blocked")
            return None
        if packet.decoding is Decoding.ENCRYPTED:
            await self._undecodable(tx, packet, now)
            return None
        if not packet.authenticated and packet.is_dm and self._settings().access.require_pki:
            await self._lacks_pki(tx, packet, now)
            return None
        person = await self._person(tx, packet, now)
        return await self._question(tx, packet, route, channel, person, now)

    async def _person(self, tx: Transaction, packet: Inbound, now: float) -> Person:
        peer = self._peer(packet.from_num)
        name = peer.long_name if peer else ""
        await nodes.heard(
            tx,
            packet.sender_id,
            now=now,
            hops=packet.hops,
            snr=packet.rx_snr,
            rssi=packet.rx_rssi,
            long_name=name,
            short_name=peer.short_name if peer else "",
        )
        if not packet.is_dm:
            key = conversations.channel_key(packet.channel_name)
            conversation = await conversations.get_or_create(tx, key, kind="channel", node_id=None, now=now)
            # The key its node is known by, so that the answer can go by DM; on a channel it proves nothing.
            known = identity.current_key(await identities.of_node(tx, packet.sender_id))
            return Person(packet.sender_id, known, conversation.id, identity.Standing.NUMBER, name)
        pinned = identity.pinned_admin_key(self._settings().access.admins, packet.sender_id)
        public_key = packet.public_key if packet.authenticated else None
        return await identity.identify(tx, packet.sender_id, public_key, now=now, pinned=pinned, name=name)

    async def _question(
        self, tx: Transaction, packet: Inbound, route: Route, channel: Channel | None, person: Person, now: float
    ) -> Question:
        expired = packet.backlog and self.age_s(packet) > STALE_S
        kind = "tapback" if packet.is_tapback else route.kind.value
        message_id = None
        if person.conv_id is not None and not expired and not packet.is_tapback:
            stored = await messages.append(
                tx,
                person.conv_id,
                role="user",
                content=route.text if route.kind is RouteKind.CHAT else packet.text.strip(),
                now=now,
                sender=packet.sender_id,
                sender_name=person.name,
                packet_id=packet.packet_id,
                is_command=route.kind is RouteKind.COMMAND,
            )
            message_id = stored.id
        row_id = await inbound.insert(
            tx,
            node_id=packet.sender_id,
            packet_id=packet.packet_id,
            content=packet.text,
            now=now,
            public_key=person.public_key,
            conv_id=person.conv_id,
            channel_index=None if packet.is_dm else packet.channel_index,
            kind=kind,
            state="expired" if expired else "received",
            reply_id=packet.reply_id,
            hops=packet.hops,
            snr=packet.rx_snr,
            rssi=packet.rx_rssi,
            rx_time=packet.rx_time,
            message_id=message_id,
        )
        return Question(
            inbound_id=row_id,
            person=person,
            route=route,
            packet_id=packet.packet_id,
            message_id=message_id,
            received_at=self._asked_at(packet, now),
            hops=packet.hops,
            snr=packet.rx_snr,
            rssi=packet.rx_rssi,
            reply_id=packet.reply_id,
            channel=channel,
            expired=expired,
            is_tapback=packet.is_tapback,
        )

    async def _undecodable(self, tx: Transaction, packet: Inbound, now: float) -> None:
        self._drop(packet, "undecodable")
        await inbound.insert(
            tx, node_id=packet.sender_id, packet_id=packet.packet_id, content="", now=now, kind="other",
            state="ignored", reason="undecodable",
        )  # fmt: skip
        if not await identity.has_key(tx, packet.sender_id):
            return
        await nodes.raise_key_alarm(tx, packet.sender_id, now=now)
        if await nodes.may_notify(tx, packet.sender_id, "key alarm", now=now, every_s=3600.0):
            log.warning(
                "%s sent a message that its known key does not open: its node was probably reset. "
                "When its owner confirms that: meshai identity accept '%s'",
                packet.sender_id, packet.sender_id,
            )  # fmt: skip

    async def _lacks_pki(self, tx: Transaction, packet: Inbound, now: float) -> None:
        self._drop(packet, "no PKI")
        await nodes.count_no_pki(tx, packet.sender_id, now=now)
        await inbound.insert(
            tx, node_id=packet.sender_id, packet_id=packet.packet_id, content="", now=now, kind="other",
            state="ignored", reason="no PKI", hops=packet.hops,
        )  # fmt: skip
        if await nodes.may_notify(tx, packet.sender_id, "no PKI", now=now, every_s=3600.0):
            log.warning(
                "a DM from %s was not answered because its node did not authenticate it by public key "
                "(access.require_pki)", packet.sender_id,
            )  # fmt: skip

    def age_s(self, packet: Inbound) -> float:
        """How old a packet is: by the node's clock where it has one, but never older than our own absence."""
        age = 0.0 if self.away_s is None else self.away_s
        if packet.rx_time:
            by_node = self._clock.now() - self._skew_s - packet.rx_time
            if 0 <= by_node <= CLOCK_SKEW_LIMIT_S:
                age = by_node if self.away_s is None else min(by_node, self.away_s + AWAY_SLACK_S)
        return age

    def _asked_at(self, packet: Inbound, now: float) -> float:
        return now - self.age_s(packet) if packet.backlog else now

    def _learn_skew(self, packet: Inbound) -> None:
        if packet.rx_time:
            skew = self._clock.now() - packet.rx_time
            self._skew_s = skew if abs(skew) <= CLOCK_SKEW_LIMIT_S else 0.0

    def _drop(self, packet: Inbound, why: str) -> None:
        self.counters.add(why)
        log.debug("packet %d from %s dropped: %s", packet.packet_id, packet.sender_id, why)
