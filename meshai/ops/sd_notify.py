"""The notification protocol of systemd (sd_notify(3)), and feeding its watchdog. Without systemd nothing happens."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping

from meshai.clock import Clock

log = logging.getLogger(__name__)

MAX_STATUS = 500


class Notifier:
    """Sends states to the service manager; a lost notification never hurts the daemon."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self._address = env.get("NOTIFY_SOCKET", "")
        self._watchdog_us = _watchdog_us(env)

    @property
    def watchdog_s(self) -> float:
        """How often to call ``feed``: half of WatchdogSec=; 0.0 when nobody watches this process."""
        return self._watchdog_us / 2_000_000

    def ready(self, status: str) -> None:
        """Start-up is over."""
        self._send(f"READY=1\n{_status(status)}")

    def status(self, text: str) -> None:
        """What ``systemctl status`` shows; one line."""
        self._send(_status(text))

    def feed(self) -> None:
        """Still alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """A clean end has begun."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if self._address[:1] not in ("/", "@"):
            return
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)  # a full queue must not hold up the loop; the next one gets through
                channel.sendto(message.encode("utf-8", "replace"), address)
        except OSError as error:
            log.debug("systemd does not listen: %s", error)


async def feed_watchdog(notifier: Notifier, healthy: Callable[[], bool], clock: Clock) -> None:
    """Feed as long as ``healthy()`` says so; runs until cancelled, returns at once when nobody watches.

    Runs on the loop it vouches for: a loop that hangs feeds nothing.
    """
    while notifier.watchdog_s:
        if healthy():
            notifier.feed()
        await clock.sleep(notifier.watchdog_s)


def _watchdog_us(env: Mapping[str, str]) -> int:
    pid, interval = env.get("WATCHDOG_PID", ""), env.get("WATCHDOG_USEC", "")
    if pid and pid != str(os.getpid()):  # meant for our parent
        return 0
    return int(interval) if interval.isdecimal() else 0


def _status(text: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in text)
    return f"STATUS={line[:MAX_STATUS]}"
