"""What a node's firmware does with packets: send, repeat, acknowledge, relay (docs/protocol.md §3, §9)."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from meshtastic.protobuf import mesh_pb2

from meshai.radio.airtime import retransmission_ms
from meshai.radio.virtual import packets
from meshai.radio.virtual.air import TX_DISABLED
from meshai.radio.virtual.frame import (
    ACK,
    BROADCAST,
    DEFAULT,
    HIGH,
    HOP_MAX,
    RELIABLE,
    ROUTING,
    TEXT,
    Error,
    Frame,
    Link,
    Lock,
    Seal,
    last_byte,
)
from meshai.radio.virtual.sealing import Opened, SealError, channel_secret, close, open_frame
from meshai.radio.virtual.timeline import Timer

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

TRIES = 3
"""Transmissions in total of a packet that wants an acknowledgement (NUM_RELIABLE_RETX, protocol.md §3.7)."""
HISTORY = 300
"""Packets the duplicate filter remembers."""
ACKS_REPLIES_SINCE = (2, 7, 12)
"""Older firmware acknowledges a text with reply_id only between direct neighbours (protocol.md §3.3)."""
CLOSED_TO_CLIENT_BEFORE = (2, 8)
"""Newer firmware keeps unopened packets to itself and drops legacy DMs silently (protocol.md §2.4, §6)."""
RELAY_ROLES, MUTE_ROLES = frozenset({"ROUTER", "REPEATER", "ROUTER_LATE"}), frozenset({"CLIENT_MUTE"})


@dataclass(slots=True)
class _Pending:
    """A packet of ours that waits for an acknowledgement."""

    frame: Frame
    priority: int
    tries_left: int
    timer: Timer | None = None


@dataclass(slots=True)
class _Seen:
    """A packet in the duplicate filter, and who was heard relaying it."""

    relayers: set[int] = field(default_factory=set)


class Router:
    """One node's packet handling. All of it is lost at a reboot."""

    def __init__(self, node: VirtualNode) -> None:
        self._node = node
        self._pending: dict[int, _Pending] = {}
        self._history: OrderedDict[tuple[int, int], _Seen] = OrderedDict()
        self._watched_broadcasts: deque[int] = deque(maxlen=HISTORY)

    def reset(self) -> None:
        """Forget packets under way and the duplicate filter."""
        for waiting in self._pending.values():
            if waiting.timer is not None:
                waiting.timer.cancel()
        self._pending.clear()
        self._history.clear()
        self._watched_broadcasts.clear()

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, packet: Any) -> int:  # noqa: ANN401
        """Send a MeshPacket of this node; the error is also told to the client as a ROUTING answer."""
        packet.id = packet.id or self._node.new_id()
        if packet.to == self._node.num:
            return self._to_myself(packet)
        try:
            self._check_may_send()
            seal, body = close(self._node, packet)
        except SealError as refused:
            self.tell_client(refused.code, packet.id)
            return refused.code
        if not self._node.settings.tx_enabled:
            return TX_DISABLED
        frame = self._frame(packet, seal, body)
        priority = packets.priority_of(packet.decoded, asked=packet.priority)
        return self._launch(frame, priority, watched=packet.want_ack)

    def _check_may_send(self) -> None:
        node = self._node
        if not node.radio.has_radio:
            raise SealError(Error.NO_INTERFACE)
        limit = node.duty_cycle_percent
        if node.radio.log.air_util_tx() > limit and not node.settings.override_duty_cycle:
            raise SealError(Error.DUTY_CYCLE_LIMIT)

    def _frame(self, packet: Any, seal: Seal, body: bytes) -> Frame:  # noqa: ANN401
        hops = min(packet.hop_limit, HOP_MAX)
        if packet.want_ack and hops == 0:
            hops = self._node.settings.hop_limit  # recording 02: hop limit 0 with want_ack goes out as 3
        known = self._node.database.get(packet.to)
        return Frame(
            from_num=self._node.num,
            to_num=packet.to,
            packet_id=packet.id,
            seal=seal,
            data=body,
            hop_limit=hops,
            hop_start=hops,
            want_ack=packet.want_ack and packet.to != BROADCAST,
            next_hop=known.next_hop if known is not None else 0,
            relay_node=self._node.byte,
        )

    def _launch(self, frame: Frame, priority: int, *, watched: bool) -> int:
        self._note(frame)
        if watched:
            if frame.to_num == BROADCAST:
                self._watched_broadcasts.append(frame.packet_id)
            waiting = _Pending(frame, priority, TRIES - 1)
            self._pending[frame.packet_id] = waiting
            self._set_timer(waiting)
        return self._node.radio.enqueue(frame, priority)

    def _to_myself(self, packet: Any) -> int:  # noqa: ANN401
        """A text to the own number is acknowledged and goes nowhere (recording 03)."""
        self._node.timeline.after(0, lambda: self._node.modules.from_client(packet))
        return Error.NONE

    def _set_timer(self, waiting: _Pending) -> None:
        node = self._node
        airtime_ms = node.radio.airtime_s(waiting.frame) * 1000
        use = node.radio.log.channel_utilization()
        delay_ms = retransmission_ms(airtime_ms, node.settings.modem, use)
        waiting.timer = node.timeline.after(delay_ms / 1000, lambda: self._retry(waiting))

    def _retry(self, waiting: _Pending) -> None:
        if waiting.tries_left == 0:
            self._stop(waiting.frame.packet_id)
            self.tell_client(Error.MAX_RETRANSMIT, waiting.frame.packet_id)
            return
        waiting.tries_left -= 1
        if waiting.tries_left == 0 and waiting.frame.next_hop:
            # The last try is flooded: the known way may be gone (recording 03b).
            waiting.frame = replace(waiting.frame, next_hop=0)
            known = self._node.database.get(waiting.frame.to_num)
            if known is not None:
                known.next_hop = 0
        self._node.radio.enqueue(waiting.frame, waiting.priority)
        self._set_timer(waiting)

    def _stop(self, packet_id: int) -> bool:
        waiting = self._pending.pop(packet_id, None)
        if waiting is None:
            return False
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._node.radio.cancel(waiting.frame.key)
        return True

    def tell_client(self, error: int, request_id: int, *, hop_limit: int = 0, by_pki: bool = False) -> int:
        """A ROUTING answer of the own node for its own client; gives the answer's own packet id."""
        node = self._node
        if error == Error.DUTY_CYCLE_LIMIT:
            node.modules.notify_duty_cycle(request_id)
        answer = packets.packet(
            node.num,
            node.num,
            node.new_id(),
            packets.routing(error, request_id),
            rx_time=node.clock(),
            priority=ACK,
            hop_limit=hop_limit,
            pki_encrypted=by_pki,
        )
        node.to_phone.put(answer)
        return int(answer.id)

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, link: Link) -> None:
        """A frame off the air."""
        node = self._node
        if frame.from_num == node.num:
            self._overheard(frame)
            return
        if frame.key in self._history:
            self._repeated(frame, link)
            return
        self._note(frame)
        opened = open_frame(node, frame)
        node.modules.heard(frame, link, opened)
        if frame.to_num == node.num:
            self._for_me(frame, link, opened)
        else:
            if frame.to_num == BROADCAST and opened.decoded is not None:
                node.modules.received(frame, opened)
                self._deliver(frame, link, opened)
            self._relay(frame, link)

    def from_mqtt(self, frame: Frame) -> None:
        """A packet a gateway on the internet hands to this node already opened: no key proves its sender."""
        if frame.key in self._history:
            return
        self._note(frame)
        opened = Opened(mesh_pb2.Data.FromString(frame.data))
        link = Link(snr=0.0, rssi=0)
        self._node.modules.heard(frame, link, opened)
        if frame.to_num in {self._node.num, BROADCAST}:
            self._node.modules.received(frame, opened)
            self._deliver(frame, link, opened)

    def _note(self, frame: Frame) -> None:
        seen = self._history.setdefault(frame.key, _Seen())
        seen.relayers.add(frame.relay_node)
        if len(self._history) > HISTORY:
            self._history.popitem(last=False)

    def _overheard(self, frame: Frame) -> None:
        """Somebody relayed a packet of ours: the implicit acknowledgement (protocol.md §3.3)."""
        if frame.relay_node == self._node.byte:
            return
        self._note(frame)
        if self._stop(frame.packet_id) or frame.packet_id in self._watched_broadcasts:
            self.tell_client(Error.NONE, frame.packet_id)

    def _repeated(self, frame: Frame, link: Link) -> None:
        node = self._node
        self._note(frame)
        if frame.to_num == node.num:
            if frame.is_direct and frame.want_ack and frame.hop_start > 0:
                opened = open_frame(node, frame)
                if opened.decoded is not None and opened.decoded.portnum != ROUTING:
                    self._answer(frame, Error.NONE, opened.channel, hops=0)
            return
        if frame.is_direct and frame.hop_start > 0:
            # The origin tries again, so nobody else carried it: once more, unless ours still waits.
            if not node.radio.waits(frame.key):
                self._relay(frame, link)
        elif node.settings.role not in RELAY_ROLES:
            node.radio.cancel(frame.key)

    def _relay(self, frame: Frame, link: Link) -> None:
        node = self._node
        if frame.hop_limit == 0 or node.settings.role in MUTE_ROLES or not node.settings.tx_enabled:
            return
        if frame.next_hop not in {0, node.byte}:
            return
        known = node.database.get(frame.to_num) if frame.next_hop else None
        copy = replace(
            frame,
            hop_limit=frame.hop_limit - 1,
            next_hop=known.next_hop if known is not None else 0,
            relay_node=node.byte,
        )
        priority = RELIABLE if frame.want_ack else DEFAULT  # the kind of packet may be sealed
        node.radio.enqueue(copy, priority, relayed_at_snr=link.snr, router=node.settings.role in RELAY_ROLES)

    def _for_me(self, frame: Frame, link: Link, opened: Opened) -> None:
        if opened.decoded is None:
            if self._node.settings.version < CLOSED_TO_CLIENT_BEFORE:
                self._deliver(frame, link, opened)
                if frame.want_ack:
                    self._answer(frame, opened.error, 0)
            elif frame.want_ack and opened.by_pki:
                self._answer(frame, opened.error, 0)
            return
        if opened.decoded.portnum == ROUTING:
            self._routing(frame, opened)
        else:
            self._node.modules.received(frame, opened)
            self._acknowledge(frame, opened)
        self._deliver(frame, link, opened)

    def _deliver(self, frame: Frame, link: Link, opened: Opened) -> None:
        node = self._node
        seen = packets.received(frame, link, opened.decoded, clock=node.clock(), channel=opened.channel, key=opened.key)
        if opened.decoded is None:
            # An unopened DM still reaches the client (protocol.md §9.6), its kind of encryption shows.
            seen.encrypted = node.rng.randbytes(max(1, frame.size - 16))
            seen.pki_encrypted = opened.by_pki
            seen.priority = HIGH
        node.to_phone.put(seen)

    def _acknowledge(self, frame: Frame, opened: Opened) -> None:
        """Answer a packet for this node; the rules are those of the recordings (docs/protocol.md §9.1)."""
        decoded = opened.decoded
        node = self._node
        if decoded.want_response and decoded.portnum == TEXT:
            self._answer(frame, Error.NO_RESPONSE, opened.channel)
        near = frame.is_direct or frame.next_hop == node.byte
        if not frame.want_ack:
            if frame.next_hop == node.byte and frame.hop_start > 0:
                self._answer(frame, Error.NONE, opened.channel, hops=0)
        elif decoded.reply_id and node.settings.version < ACKS_REPLIES_SINCE:
            if near:
                self._answer(frame, Error.NONE, opened.channel, hops=0)
        else:
            self._answer(frame, Error.NONE, opened.channel, want_ack=decoded.portnum == TEXT)

    def _routing(self, frame: Frame, opened: Opened) -> None:
        error = packets.routing_error(opened.decoded)
        request_id = opened.decoded.request_id
        self._stop(request_id)
        near = frame.next_hop == self._node.byte or (frame.want_ack and frame.is_direct)
        if error == Error.PKI_UNKNOWN_PUBKEY:
            self._node.modules.send_nodeinfo(frame.from_num)
        elif near and frame.hop_start > 0:
            self._answer(frame, Error.NONE, opened.channel, hops=0)
        self._learn_way(frame, request_id)

    def _learn_way(self, frame: Frame, request_id: int) -> None:
        """The relayer of an answer that also relayed the question, or a direct neighbour, becomes the next hop."""
        known = self._node.database.get(frame.from_num)
        asked = self._history.get((self._node.num, request_id))
        if known is None or asked is None:
            return
        direct = frame.is_direct and frame.relay_node == last_byte(frame.from_num)
        if frame.relay_node in asked.relayers or direct:
            known.next_hop = frame.relay_node

    def _answer(
        self, frame: Frame, error: int, channel: int, *, hops: int | None = None, want_ack: bool = False
    ) -> None:
        """A ROUTING answer over the air, by channel and never by PKI."""
        node = self._node
        limit = self._hops_back(frame) if hops is None else hops
        decoded = packets.routing(error, frame.packet_id)
        decoded.bitfield = 0
        known = node.database.get(frame.from_num)
        answer = Frame(
            from_num=node.num,
            to_num=frame.from_num,
            packet_id=node.new_id(),
            seal=Seal(Lock.CHANNEL, channel=channel_secret(node, channel)),
            data=bytes(decoded.SerializeToString()),
            hop_limit=limit,
            hop_start=limit,
            want_ack=want_ack,
            next_hop=known.next_hop if known is not None else 0,
            relay_node=node.byte,
        )
        self._launch(answer, ACK, watched=want_ack)

    def _hops_back(self, frame: Frame) -> int:
        """The hops it used plus two, at most the node's own limit (protocol.md §4)."""
        used = frame.hop_start - frame.hop_limit
        own = self._node.settings.hop_limit
        return own if used > own else min(used + 2, own)
