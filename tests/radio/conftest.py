"""A node on a wire, and a link to it that must leave no thread behind."""

import threading

import pytest
from support.wire_node import FAST, PtyWire, TcpWire, Watcher

from meshai.clock import SystemClock
from meshai.radio.link import LinkState
from meshai.radio.registry import open_link


@pytest.fixture(params=["tcp", "pty"])
def wire_kind(request):
    return request.param


@pytest.fixture
async def wire(wire_kind, tmp_path):
    """A node on a wire, listening."""
    node = TcpWire() if wire_kind == "tcp" else PtyWire(tmp_path / "node")
    await node.listen()
    yield node
    await node.shut_down()


@pytest.fixture
async def connect(wire):
    """Start a link to the wire; afterwards stop it and insist that no thread of it is left."""
    before = set(threading.enumerate())
    links = []

    async def start(timings=FAST, connection=None):
        link, watcher = open_link(connection or wire.connection, SystemClock(), timings), Watcher()
        links.append(link)
        await link.start(watcher)
        return link, watcher

    yield start
    for link in links:
        await link.stop()
        assert link.state is LinkState.STOPPED
    left = [t for t in threading.enumerate() if t not in before and t.name != "publishing"]
    for thread in left:
        thread.join(5.0)
    assert not [thread for thread in left if thread.is_alive()]


@pytest.fixture
async def up(connect):
    """A link that is up, and its watcher."""
    link, watcher = await connect()
    await watcher.ups(1)
    return link, watcher
