"""A node over Bluetooth: best effort. Imported only for ``connection.type: ble``.

Known limits (protocol.md §5.3): every connection begins with a scan of ten seconds; BlueZ may hang in close, which
then costs an orphaned thread; a phone that pairs with the node takes it away; the node must be paired with this
computer beforehand (``bluetoothctl``). USB or the network is the better choice for a daemon.
"""

from __future__ import annotations

import threading

from meshtastic.ble_interface import BLEInterface

from meshai.radio.explain import explain
from meshai.radio.interfaces import GuardedInterface, Listener
from meshai.radio.timings import Timings


class BleNode(GuardedInterface, BLEInterface):  # type: ignore[misc]
    """The library connects in its constructor, so ``open`` runs that; until then this object is only a promise."""

    def __init__(self, address: str, listener: Listener, timings: Timings) -> None:
        self.guard(listener, timings)
        self._address = address
        self.queueStatus = None
        self.nodesByNum = None

    def open(self) -> None:
        """Scan, connect, read the configuration."""
        BLEInterface.__init__(self, self._address, timeout=int(self.timings.handshake_s) or 1)

    def threads(self) -> list[threading.Thread]:
        """The receiving thread."""
        thread = getattr(self, "_receiveThread", None)
        return [thread] if isinstance(thread, threading.Thread) else []

    def close(self) -> None:
        """Bleak reports a loss on its own event loop's thread, where the library's close would wait for itself."""
        if threading.current_thread().name == "BLEClient":
            self.note_loss("the node closed the Bluetooth connection")
            self._disconnected()
            return
        if hasattr(self, "_receiveThread"):
            super().close()

    def _startConfig(self) -> None:  # noqa: N802 - the library's name
        self.transport_open = True
        super()._startConfig()

    def _receiveFromRadioImpl(self) -> None:  # noqa: N802
        """The library's loop dies of several exceptions without a word; here it becomes one loss."""
        try:
            super()._receiveFromRadioImpl()
        except Exception as error:  # noqa: BLE001 - bleak and D-Bus errors of every kind, and an unbound local
            self.note_loss(explain(error))
            self._disconnected()
