"""A virtual node: identity, settings, clock and power; what it does with packets is in ``router`` and ``modules``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshai.radio.airtime import DUTY_CYCLE_PERCENT
from meshai.radio.virtual import packets
from meshai.radio.virtual.air import Air, Radio
from meshai.radio.virtual.database import NodeDatabase
from meshai.radio.virtual.frame import TEXT, Frame, Link, Lock, Seal, last_byte
from meshai.radio.virtual.modules import Modules
from meshai.radio.virtual.router import Router
from meshai.radio.virtual.settings import NodeSettings
from meshai.radio.virtual.timeline import Timeline
from meshai.radio.virtual.tophone import ToPhone

BOOT_S = 7.0
"""How long a device is away when it reboots: 5-15 s (data of the recordings; protocol.md §8)."""


class VirtualNode:
    """One device: it can be attached to by stream clients (TCP, pty) and by scripted phones."""

    def __init__(self, num: int, air: Air, settings: NodeSettings, private_key: bytes, public_key: bytes) -> None:
        self.num = num
        self.settings = settings
        self.private_key = private_key
        self.public_key = public_key
        self.timeline: Timeline = air.timeline
        self.rng = air.rng
        self.database = NodeDatabase(settings.database)
        self.to_phone = ToPhone(settings.to_phone)
        self.radio = Radio(num, air, lambda: self.settings.modem, self._hear)
        air.join(self.radio)
        self.free_zero = False  # queueStatus.free is 0 for ever (protocol.md §3.6)
        self.session_key = b""
        self.boot_s = BOOT_S
        self.booted_at = self.timeline.now()
        self.boots = 0
        self._clock: float | None = None  # calendar time minus the timeline's real time
        self._on_power: list[Callable[[bool], None]] = []
        self.router = Router(self)
        self.modules = Modules(self)
        self.modules.start()

    def __repr__(self) -> str:
        return f"<VirtualNode {self.id} {self.settings.long_name!r}>"

    @property
    def id(self) -> str:
        """The node number as ``!a1b2c3d4``."""
        return f"!{self.num:08x}"

    @property
    def byte(self) -> int:
        """The node's short mark on the air."""
        return last_byte(self.num)

    @property
    def on(self) -> bool:
        """Powered and running."""
        return self.radio.on

    @property
    def duty_cycle_percent(self) -> float:
        """The region's limit on transmitting."""
        return DUTY_CYCLE_PERCENT.get(self.settings.region, 100.0)

    @property
    def queue_free(self) -> int:
        """Free places of the transmit queue, as the client is told."""
        return 0 if self.free_zero else self.radio.free

    @property
    def uptime_s(self) -> int:
        """Protocol seconds since the last boot."""
        return int(self.timeline.now() - self.booted_at)

    def clock(self) -> int:
        """The node's calendar in seconds since 1970, 0 while nobody has set it (protocol.md §9.13)."""
        return 0 if self._clock is None else int(self._clock + self.timeline.real()) & 0xFFFFFFFF

    def set_clock(self, epoch: float) -> None:
        """Set the calendar. It runs as fast as the clients' clocks, whatever the mesh's speed."""
        self._clock = epoch - self.timeline.real()

    def new_id(self) -> int:
        """A packet id."""
        return self.rng.randrange(1, 2**32)

    def on_power(self, listener: Callable[[bool], None]) -> None:
        """Have ``listener(False)`` called at switch-off or crash, ``listener(True)`` when it runs again."""
        self._on_power.append(listener)

    def switch_off(self) -> None:
        """Power gone: queue, duplicate filter, clock and session are lost; settings and database stay."""
        if not self.on:
            return
        self.radio.on = False
        self.radio.silence()
        self.router.reset()
        self.modules.stop()
        self.to_phone.clear()
        self._clock = None
        self.session_key = b""
        self._tell(on=False)

    def switch_on(self) -> None:
        """Boot."""
        if self.on:
            return
        self.radio.on = True
        self.booted_at = self.timeline.now()
        self.boots += 1
        self.modules.start()
        self._tell(on=True)

    def reboot(self, after_s: float = 0.0) -> None:
        """Restart in ``after_s`` protocol seconds and be away for ``boot_s``."""

        def restart() -> None:
            self.switch_off()
            self.timeline.after(self.boot_s, self.switch_on)

        if after_s > 0:
            self.timeline.after(after_s, restart)
        else:
            restart()

    def reboot_loop(self, times: int, *, up_s: float = 3.0) -> None:
        """Crash soon after each boot, so many times: a brown-out, or a broken firmware."""

        def crash(left: int) -> None:
            self.reboot()
            if left > 1:
                self.timeline.after(self.boot_s + up_s, lambda: crash(left - 1))

        crash(times)

    def rekey(self) -> None:
        """A factory reset: a new key pair under the same number, and an empty database (protocol.md §9.5).

        No reboot: clients stay. The new NodeInfo goes out after 30 s, as after any start.
        """
        self.private_key, self.public_key = self.rng.randbytes(32), self.rng.randbytes(32)
        self.database.clear()
        self.router.reset()
        if self.on:
            self.modules.stop()
            self.modules.start()

    def meet(self, other: VirtualNode) -> None:
        """Know another node as if its NodeInfo had arrived."""
        user = other.modules.user()
        self.database.learn(
            other.num,
            long_name=user.long_name,
            short_name=user.short_name,
            key=bytes(user.public_key),
            role=user.role,
            is_licensed=user.is_licensed,
        )

    def send(self, packet: Any) -> int:  # noqa: ANN401 - a MeshPacket
        """Send a packet as the node's own client would, without the client's rate limits; 0 or the error."""
        self.timeline.catch_up()
        return self.router.send(packet)

    def from_mqtt(self, from_num: int, text: str, *, to_num: int | None = None, hops: int = 0) -> int:
        """A text from the internet, ``via_mqtt`` set and its sender unproven; gives its packet id."""
        self.timeline.catch_up()
        decoded = packets.data(TEXT, text.encode())
        decoded.bitfield = 1
        frame = Frame(
            from_num=from_num,
            to_num=self.num if to_num is None else to_num,
            packet_id=self.new_id(),
            seal=Seal(Lock.CHANNEL),
            data=bytes(decoded.SerializeToString()),
            hop_limit=3 - hops,
            via_mqtt=True,
        )
        self.router.from_mqtt(frame)
        return frame.packet_id

    def know_strangers(self, count: int) -> None:
        """Fill the database with nodes never met: a big mesh, a long download."""
        for index in range(count):
            num = 0x57000000 + index
            name = f"Stranger {index:03d}"
            self.database.learn(num, long_name=name, short_name=f"S{index:03d}", key=self.rng.randbytes(32))

    def _hear(self, frame: Frame, link: Link) -> None:
        self.router.receive(frame, link)

    def _tell(self, *, on: bool) -> None:
        for listener in list(self._on_power):
            listener(on)
