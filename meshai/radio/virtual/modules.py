"""The node's own programs: NodeInfo, telemetry, notifications, and packets addressed to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from meshtastic.protobuf import config_pb2, mesh_pb2, telemetry_pb2

from meshai.radio.virtual import packets
from meshai.radio.virtual.admin import Admin
from meshai.radio.virtual.air import TX_QUEUE
from meshai.radio.virtual.frame import ADMIN, BACKGROUND, BROADCAST, NODEINFO, TELEMETRY, Error, Frame, Link
from meshai.radio.virtual.sealing import Opened
from meshai.radio.virtual.timeline import Timer

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

FIRST_NODEINFO_S, NODEINFO_EVERY_S = 30.0, 10800.0
NODEINFO_PAUSE_S = 60.0
"""A node answers and introduces itself at most this often (protocol.md §9.4)."""
FIRST_TELEMETRY_S, TELEMETRY_EVERY_S = 75.0, 60.0
"""Own deviceMetrics for the client (recordings 01 and 14)."""
STATS_EVERY = 15
"""Every so many telemetries come with localStats, the first among them."""
POWERED = 101
"""batteryLevel of a node without a battery."""


class Modules:
    """What runs on the node beside its router."""

    def __init__(self, node: VirtualNode) -> None:
        self._node = node
        self._admin = Admin(node)
        self._timers: list[Timer] = []
        self._nodeinfo_at: float | None = None
        self._telemetries = 0
        self._metrics: Any = telemetry_pb2.DeviceMetrics()

    def start(self) -> None:
        """After boot; the first client finds a QueueStatus without an id (recording 11)."""
        self.report_state(0)
        self._nodeinfo_at = None
        self._telemetries = 0
        self._timers = [
            self._node.timeline.after(FIRST_NODEINFO_S, self._announce),
            self._node.timeline.after(FIRST_TELEMETRY_S, self._measure),
        ]

    def settle(self) -> None:
        """As if up for hours: the first NodeInfo is long out, the next comes some time."""
        self._timers[0].cancel()
        wait = self._node.rng.uniform(0.2, 1.0) * NODEINFO_EVERY_S
        self._timers[0] = self._node.timeline.after(wait, self._announce)

    def stop(self) -> None:
        """At power-off."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def user(self) -> Any:  # noqa: ANN401
        """The node as others see it."""
        node = self._node
        made = mesh_pb2.User(
            id=node.id,
            long_name=node.settings.long_name,
            short_name=node.settings.short_name,
            macaddr=b"\x02\x00" + node.num.to_bytes(4, "big"),
            hw_model=packets.HARDWARE,
            is_licensed=node.settings.licensed,
            role=config_pb2.Config.DeviceConfig.Role.Value(node.settings.role),
            public_key=b"" if node.settings.licensed else node.public_key,
        )
        made.is_unmessagable = False
        return made

    @property
    def metrics(self) -> Any:  # noqa: ANN401
        """The own DeviceMetrics as last told to the client."""
        return self._metrics

    def send_nodeinfo(self, to_num: int = BROADCAST, *, want_response: bool = False, at_once: bool = False) -> bool:
        """Introduce this node; False when it did so less than a minute ago and ``at_once`` is not set."""
        node = self._node
        now = node.timeline.now()
        if not at_once and self._nodeinfo_at is not None and now - self._nodeinfo_at < NODEINFO_PAUSE_S:
            return False
        self._nodeinfo_at = now
        body = self.user().SerializeToString()
        packet = mesh_pb2.MeshPacket(
            to=to_num,
            hop_limit=node.settings.hop_limit,
            priority=BACKGROUND,
            decoded=packets.data(NODEINFO, body, want_response=want_response),
        )
        error = node.router.send(packet)
        self.report_state(packet.id, error)
        return True

    def report_state(self, packet_id: int, error: int = 0) -> None:
        """A QueueStatus for the client."""
        node = self._node
        node.to_phone.put_state(packets.queue_state(node.queue_free, TX_QUEUE, res=error, packet_id=packet_id))

    def notify_duty_cycle(self, request_id: int) -> None:
        """Say when sending is possible again (26:Router.cpp:300)."""
        log, limit = self._node.radio.log, self._node.duty_cycle_percent
        minutes = log.minutes_until_below(limit)
        text = f"Duty cycle limit exceeded. You can send again in {minutes} mins"
        notice = mesh_pb2.ClientNotification(reply_id=request_id, time=self._node.clock(), message=text)
        notice.level = 30  # LogRecord.WARNING
        self._node.to_phone.put_notification(notice)

    def heard(self, frame: Frame, link: Link, opened: Opened) -> None:
        """Any opened packet keeps its sender in the database; an unknown sender is asked who it is."""
        if opened.decoded is None:
            return
        node = self._node
        known = node.database.touch(frame.from_num)
        if known is None:
            return
        known.last_heard, known.via_mqtt = node.clock(), frame.via_mqtt
        if frame.hop_start >= frame.hop_limit:
            known.hops_away = frame.hop_start - frame.hop_limit
        if frame.is_direct:
            known.snr = link.snr
        if not known.has_user and opened.decoded.portnum != NODEINFO:
            self.send_nodeinfo(frame.from_num, want_response=True)

    def received(self, frame: Frame, opened: Opened) -> None:
        """A packet for this node or for everybody."""
        if opened.decoded.portnum != NODEINFO:
            return
        try:
            user = mesh_pb2.User.FromString(opened.decoded.payload)
        except DecodeError:
            return
        self._node.database.learn(
            frame.from_num,
            long_name=user.long_name,
            short_name=user.short_name,
            key=bytes(user.public_key),
            role=user.role,
            is_licensed=user.is_licensed,
        )
        if opened.decoded.want_response:
            self.send_nodeinfo(frame.from_num)

    def from_client(self, packet: Any) -> None:  # noqa: ANN401
        """A packet the client addressed to its own node."""
        if packet.decoded.portnum == ADMIN:
            self._admin.handle(packet)
        elif packet.want_ack:
            self._node.router.tell_client(Error.NONE, packet.id, hop_limit=self._node.settings.hop_limit)

    def _announce(self) -> None:
        self._timers[0] = self._node.timeline.after(NODEINFO_EVERY_S, self._announce)
        self.send_nodeinfo()

    def _measure(self) -> None:
        """For the client only, and only when it has nothing else to read (26:DeviceTelemetry.h:51)."""
        node = self._node
        self._timers[1] = node.timeline.after(TELEMETRY_EVERY_S, self._measure)
        if len(node.to_phone) == 0:
            self._metrics = telemetry_pb2.DeviceMetrics(
                battery_level=POWERED,
                voltage=0.0,
                channel_utilization=node.radio.log.channel_utilization(),
                air_util_tx=node.radio.log.air_util_tx(),
                uptime_seconds=node.uptime_s,
            )
            self._tell(telemetry_pb2.Telemetry(time=node.clock(), device_metrics=self._metrics))
            if self._telemetries % STATS_EVERY == 0:
                self._tell(telemetry_pb2.Telemetry(time=node.clock(), local_stats=self._stats()))
        self._telemetries += 1

    def _stats(self) -> Any:  # noqa: ANN401
        node = self._node
        return telemetry_pb2.LocalStats(
            uptime_seconds=node.uptime_s,
            channel_utilization=node.radio.log.channel_utilization(),
            air_util_tx=node.radio.log.air_util_tx(),
            num_packets_tx=node.radio.frames_sent,
            num_total_nodes=len(node.database) + 1,
        )

    def _tell(self, telemetry: Any) -> None:  # noqa: ANN401
        node = self._node
        decoded = packets.data(TELEMETRY, telemetry.SerializeToString())
        node.to_phone.put(
            packets.packet(
                node.num,
                BROADCAST,
                node.new_id(),
                decoded,
                rx_time=node.clock(),
                hop_limit=node.settings.hop_limit,
                priority=BACKGROUND,
            )
        )
