"""The notification protocol over a real datagram socket."""

import asyncio
import os
import socket

import pytest

from meshai.ops.sd_notify import Notifier, feed_watchdog


@pytest.fixture
def manager(tmp_path):
    """The service manager's end."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(path))
        channel.settimeout(5)
        yield channel, {"NOTIFY_SOCKET": str(path)}


def test_states_arrive_as_systemd_wants_them(manager):
    channel, env = manager
    notifier = Notifier(env)
    notifier.ready("waiting for the node")
    notifier.status("two\nlines \x1b[1m")
    notifier.feed()
    notifier.stopping()
    assert [channel.recv(4096) for _ in range(4)] == [
        b"READY=1\nSTATUS=waiting for the node",
        b"STATUS=two lines  [1m",
        b"WATCHDOG=1",
        b"STOPPING=1",
    ]


def test_abstract_address_is_understood():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(b"\0meshai-test-%d" % os.getpid())
        channel.settimeout(5)
        Notifier({"NOTIFY_SOCKET": f"@meshai-test-{os.getpid()}"}).feed()
        assert channel.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "relative", "/nonexistent/socket", "/" + "x" * 300])
def test_missing_manager_is_no_error(address):
    Notifier({"NOTIFY_SOCKET": address}).ready("x")


def test_full_queue_does_not_block(manager):
    _, env = manager
    notifier = Notifier(env)
    for _ in range(2000):  # the kernel takes net.unix.max_dgram_qlen of them
        notifier.feed()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"WATCHDOG_USEC": "120000000"}, 60.0),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": str(os.getpid())}, 60.0),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_feeding_interval_is_half_the_watchdogs(env, expected):
    assert Notifier(env).watchdog_s == expected


class StepClock:
    """Sleeps end at once; after ``steps`` of them the task is cancelled."""

    def __init__(self, steps):
        self.slept = []
        self._steps = steps

    async def sleep(self, seconds):
        self.slept.append(seconds)
        if len(self.slept) >= self._steps:
            raise asyncio.CancelledError


async def test_watchdog_is_fed_only_while_healthy(manager):
    channel, env = manager
    verdicts = iter([True, False, True])
    clock = StepClock(3)
    with pytest.raises(asyncio.CancelledError):
        await feed_watchdog(Notifier({**env, "WATCHDOG_USEC": "20000000"}), lambda: next(verdicts), clock)
    assert clock.slept == [10.0, 10.0, 10.0]
    assert [channel.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
    channel.setblocking(False)
    with pytest.raises(BlockingIOError):
        channel.recv(100)


async def test_without_watchdog_there_is_nothing_to_feed(manager):
    await feed_watchdog(Notifier(manager[1]), lambda: pytest.fail("asked"), StepClock(1))
