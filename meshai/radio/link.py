"""What the rest of the program knows of a radio: a protocol and its values. No library is imported here.

A ``RadioLink`` is driven from the event loop. It reports by calling the ``EventSink`` it was started with,
always on the loop's thread, and the sink only enqueues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

BROADCAST_NUM = 0xFFFFFFFF
"""The node number that means everybody (firmware NodeDB.h)."""


def node_id(num: int) -> str:
    """The text form of a node number, as stored and shown: ``!a1b2c3d4``."""
    return f"!{num:08x}"


def node_num(text: str) -> int:
    """The node number of ``!a1b2c3d4``; raises ValueError for anything else."""
    digits = text.removeprefix("!")
    if len(digits) != 8:
        raise ValueError(f"not a node id: {text!r}")
    return int(digits, 16)


class Decoding(StrEnum):
    """How far the node could open a packet."""

    TEXT = "text"  # a text message whose payload is valid UTF-8
    BAD_UTF8 = "bad_utf8"  # a text message whose payload is not
    ENCRYPTED = "encrypted"  # addressed to us, but the node has no key that opens it (protocol.md §9.6)


@dataclass(frozen=True, slots=True)
class Inbound:
    """One text packet as the node handed it over. Numbers are the firmware's own; absent fields are None."""

    from_num: int
    to_num: int
    packet_id: int
    decoding: Decoding
    text: str = ""  # "" unless decoding is TEXT
    channel_index: int = 0
    channel_name: str = ""
    is_dm: bool = True  # addressed to our own node
    is_tapback: bool = False  # decoded.emoji was set
    reply_id: int | None = None
    pki_encrypted: bool = False
    public_key: bytes | None = None  # the 32 bytes the node verified, never a key from its node database
    via_mqtt: bool = False
    rx_time: int | None = None  # the node's clock, seconds since 1970; None when it has none
    rx_snr: float | None = None
    rx_rssi: int | None = None
    hop_start: int | None = None
    hop_limit: int | None = None
    received_at: float = 0.0  # this computer's clock when the callback ran
    backlog: bool = False  # arrived in the burst that follows a (re)connect

    @property
    def sender_id(self) -> str:
        """The sender as ``!a1b2c3d4``."""
        return node_id(self.from_num)

    @property
    def authenticated(self) -> bool:
        """True only if the node decoded it, says PKI, and shows the key (DESIGN §3, protocol.md §9.6)."""
        return self.decoding is not Decoding.ENCRYPTED and self.pki_encrypted and self.public_key is not None

    @property
    def hops(self) -> int | None:
        """Hops the packet used, None when the sender did not say."""
        if self.hop_start is None or self.hop_limit is None or self.hop_start < self.hop_limit:
            return None
        return self.hop_start - self.hop_limit


@dataclass(frozen=True, slots=True)
class Receipt:
    """A ROUTING answer for a packet of ours (protocol.md §3.2)."""

    packet_id: int
    from_num: int
    error: str  # the Routing.Error name; "NONE" is an ACK
    implicit: bool  # from our own node: somebody relayed it, nothing more (protocol.md §3.3)


@dataclass(frozen=True, slots=True)
class Heard:
    """Any packet a node originated, ROUTING answers excepted: it is in reach (DESIGN §3 "Times")."""

    from_num: int
    at: float
    hops: int | None = None
    snr: float | None = None
    via_mqtt: bool = False


@dataclass(frozen=True, slots=True)
class Alert:
    """Something the node says to its client, such as the wait a duty cycle asks for (clientNotification)."""

    text: str
    reply_id: int | None = None


class LinkState(StrEnum):
    """Where the link stands."""

    DOWN = "down"  # no node; the supervisor is waiting before the next attempt
    CONNECTING = "connecting"  # handshake in progress
    UP = "up"  # configuration received, packets flow
    STOPPED = "stopped"  # closed by us
    STUCK = "stuck"  # a library thread does not end; only a restart of the process helps


@dataclass(frozen=True, slots=True)
class LinkChange:
    """The link changed its state; ``reason`` is for the log and ``status``."""

    state: LinkState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of the own node."""

    index: int
    name: str  # the preset's name when the channel has none of its own
    is_primary: bool = False
    has_default_key: bool = False


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The own node, as read after the handshake."""

    num: int
    long_name: str = ""
    short_name: str = ""
    public_key: bytes | None = None
    firmware: str = ""
    hardware: str = ""
    role: str = "CLIENT"
    region: str = "UNSET"
    preset: str = "LONG_FAST"
    bandwidth_khz: float = 250.0
    spreading_factor: int = 11
    coding_rate: int = 5
    hop_limit: int = 3
    licensed: bool = False  # ham mode: sends no PKI DMs
    override_duty_cycle: bool = False
    channels: tuple[Channel, ...] = field(default=())
    nodes_known: int = 0

    @property
    def id(self) -> str:
        """The own node as ``!a1b2c3d4``."""
        return node_id(self.num)


@dataclass(frozen=True, slots=True)
class Peer:
    """What the own node knows of another. The key in the node database is not here: it proves nothing."""

    num: int
    long_name: str = ""
    short_name: str = ""
    last_heard: int | None = None
    hops_away: int | None = None
    snr: float | None = None
    is_favourite: bool = False


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The own node's view of the channel, None when it has not said (DESIGN §3: unknown counts as 0)."""

    channel_utilization_percent: float | None = None
    air_util_tx_percent: float | None = None


@dataclass(frozen=True, slots=True)
class SendRequest:
    """One text packet to hand to the node. ``packet_id`` was drawn and committed before."""

    packet_id: int
    to_num: int
    text: str
    channel_index: int = 0
    reply_id: int | None = None
    is_tapback: bool = False  # text is one emoji, reply_id the packet it stands on
    public_key: bytes | None = None  # set: PKI only, and only to this key (protocol.md §3.1)
    hop_limit: int | None = None  # None: the node's own
    want_ack: bool = True


LinkEvent = Inbound | Receipt | Heard | Alert | LinkChange
EventSink = Callable[[LinkEvent], None]


class RadioLink(Protocol):
    """A node, however it is attached. A new kind of radio is one module plus one line in ``radio.registry``."""

    @property
    def state(self) -> LinkState:
        """Where the link stands now."""
        ...

    @property
    def node(self) -> NodeInfo | None:
        """The own node; the last known one while the link is down; None before the first handshake."""
        ...

    async def start(self, sink: EventSink) -> None:
        """Begin connecting in the background and return at once; a missing node is no error."""
        ...

    async def stop(self) -> None:
        """Close within a bounded time; the state ends as STOPPED."""
        ...

    def new_packet_id(self) -> int:
        """A packet id in the library's range, to be committed before ``send``. Works while the link is down."""
        ...

    async def send(self, request: SendRequest) -> None:
        """Hand one packet to the node; returns when the library has written it.

        Raises LinkDownError when there is no node (nothing was written), NotOnAirError when the node's
        queue is full or the text cannot be sent at all.
        """
        ...

    async def set_favourite(self, num: int) -> None:
        """Keep a node in the radio's database so that its key is not evicted; raises LinkDownError."""
        ...

    async def remove_node(self, num: int) -> None:
        """Make the radio forget a node and its key; raises LinkDownError."""
        ...

    def peer(self, num: int) -> Peer | None:
        """What the own node knows of another node."""
        ...

    def telemetry(self) -> Telemetry:
        """The own node's latest channel utilisation."""
        ...

    def must_restart(self) -> str:
        """Why only a new process can revive the link, "" while it is healthy; an absent node is healthy."""
        ...

    def status(self) -> dict[str, object]:
        """Facts for ``status``: device, since when, reconnects, last error; JSON types only."""
        ...
