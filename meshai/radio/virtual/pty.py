"""A node on a pseudo terminal: to pyserial and the stock library a serial port (docs/protocol.md §2.5, §5.3, §8)."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tty
from pathlib import Path
from typing import TYPE_CHECKING

from meshtastic.protobuf import mesh_pb2

from meshai.radio.virtual.stream import Manners, Session, framed

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode

log = logging.getLogger(__name__)

STALE_S = 0.5
"""Real seconds without a reader after which bytes are lost, as on a UART; a reader that is there is faster."""


class PtyPort:
    """A board with a UART bridge. ``path`` is what to open; with ``link`` a stable name as below /dev/serial/by-id.

    The port stays when a client closes it, and the node does not notice: it keeps writing to it, and what it writes
    is lost (protocol.md §2.5). What it remembers of the client's sending outlives clients until the node reboots.
    ``native_usb``: the port vanishes while the node boots.
    """

    def __init__(self, node: VirtualNode, link: Path | None = None, *, native_usb: bool = False) -> None:
        self._node = node
        self._link = link
        self._native_usb = native_usb
        self._master = self._slave = -1
        self._unsent = b""
        self._stuck_at: float | None = None
        self._manners = Manners()
        self._session: Session | None = None
        self._wanted = False
        self.path = ""
        node.on_power(self._power)

    @property
    def plugged(self) -> bool:
        """Whether the port exists."""
        return self._master >= 0

    def start(self) -> None:
        """Plug the board in; needs a running loop."""
        self._wanted = True
        self.plug()

    def stop(self) -> None:
        """Take the port away for good."""
        self._wanted = False
        self.unplug()

    def plug(self) -> None:
        """The port appears, under a new device name; ``link`` points at it."""
        if self.plugged or (self._native_usb and not self._node.on):
            return
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        if self._link is not None:
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(self.path)
            self.path = str(self._link)
        asyncio.get_running_loop().add_reader(self._master, self._readable)
        self._open_session()

    def unplug(self) -> None:
        """The cable is pulled: readers get an error, the name vanishes. The node itself stays as it is."""
        if not self.plugged:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._master)
        loop.remove_writer(self._master)
        self._end_session()
        # The master first: the other order leaves a blocked reader of the slave waiting (protocol.md §7).
        os.close(self._master)
        os.close(self._slave)
        self._master = self._slave = -1
        self._unsent = b""
        if self._link is not None:
            self._link.unlink(missing_ok=True)

    def mute(self) -> None:
        """The firmware hangs: bytes are taken, nothing comes back, until the node reboots or is plugged in again."""
        if self._session is not None:
            self._session.answers = False

    def _open_session(self) -> None:
        self._end_session()
        if self._node.on:
            self._session = Session(self._node, self._write, self._give_up, self._manners)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.end()
            self._session = None

    def _give_up(self) -> None:
        """The client was silent for 15 minutes: back to queueing."""
        self._open_session()

    def _power(self, on: bool) -> None:
        self._manners.clear()
        if not on:
            self._end_session()
            if self._native_usb:
                self.unplug()
        elif self._wanted and not self.plugged:
            self.plug()
        elif self.plugged:
            self._open_session()
            self._write(framed(mesh_pb2.FromRadio(rebooted=True)))

    def _readable(self) -> None:
        try:
            data = os.read(self._master, 4096)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return
        if self._session is not None:
            self._session.feed(data)

    def _write(self, data: bytes) -> None:
        if not self.plugged:
            return
        self._unsent += data
        self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        if self._stuck_at is not None and loop.time() - self._stuck_at > STALE_S:
            self._unsent = b""
        try:
            written = os.write(self._master, self._unsent)
        except BlockingIOError:
            written = 0
        self._unsent = self._unsent[written:]
        if written or not self._unsent:
            self._stuck_at = None
        elif self._stuck_at is None:
            self._stuck_at = loop.time()
        if self._unsent:
            loop.add_writer(self._master, self._flush)
        else:
            loop.remove_writer(self._master)
