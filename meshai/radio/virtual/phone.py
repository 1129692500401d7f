"""A scripted phone: a person's app on a virtual node, driven from Python, without the stream API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from meshtastic.protobuf import mesh_pb2

from meshai.radio.airtime import frame_bytes, time_on_air_ms
from meshai.radio.virtual import packets
from meshai.radio.virtual.frame import BROADCAST, ROUTING, TEXT, Error

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

T = TypeVar("T")


class Fate(StrEnum):
    """What became of a text, as an app would show it."""

    SENT = "sent"  # nothing heard yet
    RELAYED = "relayed"  # somebody repeated it: an implicit acknowledgement
    ACKED = "acked"  # the destination's node has it
    FAILED = "failed"  # see ``error``


@dataclass(slots=True)
class Sent:
    """A text this phone sent, and its receipts so far."""

    to_num: int
    text: str
    packet_id: int
    fate: Fate = Fate.SENT
    error: str = ""  # the Routing.Error name when it failed
    took_s: float = 0.0  # protocol seconds to the latest receipt
    airtime_ms: float = 0.0  # of one transmission


@dataclass(frozen=True, slots=True)
class Message:
    """A text this phone received. Undecodable ones have ``encrypted`` set and no text."""

    from_num: int
    to_num: int
    text: str
    packet_id: int
    reply_id: int = 0
    emoji: bool = False
    hops: int = 0
    channel: int = 0
    pki: bool = False
    encrypted: bool = False
    at: float = 0.0  # protocol time
    size: int = 0  # UTF-8 bytes of the text
    airtime_ms: float = 0.0  # of one transmission

    @property
    def is_dm(self) -> bool:
        """Addressed to this phone's node."""
        return self.to_num != BROADCAST


@dataclass(slots=True)
class Phone:
    """Takes what its node has for a client, as a connected app does, and sends like one, but without rate limits.

    ``received`` and ``sent`` grow for ever; ``on_message`` and ``on_receipt`` are called on the loop.
    """

    node: VirtualNode
    received: list[Message] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    on_message: Callable[[Message], None] | None = None
    on_receipt: Callable[[Sent], None] | None = None
    _started: dict[int, float] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Connect the app to its node; what waited there arrives at once."""
        self.node.to_phone.unwatch(self._take)
        self.node.to_phone.watch(self._take)
        self._take()

    def close(self) -> None:
        """Put the phone away; the node keeps what arrives, as far as its queue goes."""
        self.node.to_phone.unwatch(self._take)

    @property
    def num(self) -> int:
        """Its node's number."""
        return self.node.num

    async def send_dm(
        self,
        to: VirtualNode | int,
        text: str | bytes,
        *,
        reply_id: int = 0,
        want_ack: bool = True,
        hop_limit: int | None = None,
    ) -> Sent:
        """Send a direct message; the receipt comes later, see ``settled``."""
        return self._send(_num(to), text, want_ack=want_ack, hop_limit=hop_limit, reply_id=reply_id)

    async def send_channel(self, text: str | bytes, *, channel: int = 0, reply_id: int = 0) -> Sent:
        """Send to everybody on a channel."""
        return self._send(BROADCAST, text, channel=channel, reply_id=reply_id)

    async def tapback(self, to: VirtualNode | int, packet_id: int, emoji: str = "👍") -> Sent:
        """Put an emoji on a message."""
        return self._send(_num(to), emoji, reply_id=packet_id, emoji=1)

    async def wait_for(self, wanted: Callable[[Message], bool], timeout_s: float = 10.0) -> Message:
        """The first received message that is wanted, earlier ones included; TimeoutError after real seconds."""
        return await self._until(lambda: next((m for m in self.received if wanted(m)), None), timeout_s)

    async def settled(self, sent: Sent, timeout_s: float = 10.0) -> Sent:
        """Wait until a text is acknowledged or failed (RELAYED may still become either); real seconds."""
        return await self._until(lambda: sent if sent.fate in {Fate.ACKED, Fate.FAILED} else None, timeout_s)

    async def receipt(self, sent: Sent, timeout_s: float = 10.0) -> Sent:
        """Wait for any receipt; real seconds."""
        return await self._until(lambda: sent if sent.fate is not Fate.SENT else None, timeout_s)

    async def _until(self, look: Callable[[], T | None], timeout_s: float) -> T:
        async with asyncio.timeout(timeout_s):
            while (found := look()) is None:
                self._changed.clear()
                await self._changed.wait()
            return found

    def _send(
        self, to_num: int, text: str | bytes, *, channel: int = 0, want_ack: bool = True, hop_limit: int | None = None,
        **fields: int,
    ) -> Sent:  # fmt: skip
        node = self.node
        packet = packets.text(to_num, text, channel=channel, want_ack=want_ack, **fields)
        packet.hop_limit = node.settings.hop_limit if hop_limit is None else hop_limit
        packet.id = node.new_id()
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        airtime_ms = self._airtime_ms(packet.decoded, pki=to_num != BROADCAST and not node.settings.licensed)
        sent = Sent(to_num, shown, packet.id, airtime_ms=airtime_ms)
        self.sent.append(sent)
        self._started[packet.id] = node.timeline.now()
        error = node.send(packet)
        if error and sent.fate is Fate.SENT:
            sent.fate, sent.error = Fate.FAILED, _error_name(error)
        return sent

    def _airtime_ms(self, decoded: Any, *, pki: bool) -> float:  # noqa: ANN401
        size = frame_bytes(
            len(decoded.payload), pki=pki, has_reply=bool(decoded.reply_id), is_tapback=bool(decoded.emoji)
        )
        return time_on_air_ms(size, self.node.settings.modem)

    def _take(self) -> None:
        while (item := self.node.to_phone.take()) is not None:
            kind, packet = item
            if kind != "packet":
                continue
            if packet.decoded.portnum == ROUTING:
                self._routing(packet)
            elif packet.decoded.portnum == TEXT or packet.encrypted:
                self._text(packet)
        self._changed.set()

    def _text(self, packet: Any) -> None:  # noqa: ANN401
        decoded = packet.decoded
        message = Message(
            from_num=getattr(packet, "from"),
            to_num=packet.to,
            text=decoded.payload.decode(errors="replace"),
            packet_id=packet.id,
            reply_id=decoded.reply_id,
            emoji=bool(decoded.emoji),
            hops=packet.hop_start - packet.hop_limit,
            channel=packet.channel,
            pki=packet.pki_encrypted and bool(packet.public_key),
            encrypted=bool(packet.encrypted),
            at=self.node.timeline.now(),
            size=len(decoded.payload),
            airtime_ms=self._airtime_ms(decoded, pki=packet.pki_encrypted),
        )
        self.received.append(message)
        if self.on_message is not None:
            self.on_message(message)

    def _routing(self, packet: Any) -> None:  # noqa: ANN401
        sent = next((s for s in self.sent if s.packet_id == packet.decoded.request_id), None)
        if sent is None or sent.fate is Fate.ACKED:
            return
        error = packets.routing_error(packet.decoded)
        if error == Error.NONE:
            own = getattr(packet, "from") == self.num
            sent.fate = Fate.RELAYED if own and sent.to_num != self.num else Fate.ACKED
            sent.error = ""
        else:
            sent.fate, sent.error = Fate.FAILED, _error_name(error)
        sent.took_s = self.node.timeline.now() - self._started[sent.packet_id]
        if self.on_receipt is not None:
            self.on_receipt(sent)


def _num(to: VirtualNode | int) -> int:
    return to if isinstance(to, int) else to.num


def _error_name(error: int) -> str:
    try:
        return str(mesh_pb2.Routing.Error.Name(error))
    except ValueError:
        return str(error)
