"""The background worker ends when it is told to, whatever it is doing."""

import asyncio

import pytest

from meshai.clock import SystemClock
from meshai.memory.worker import Worker


@pytest.mark.parametrize("turns", range(6))
async def test_stop_ends_worker_just_woken(turns):
    """A cancelled answer wakes the worker in the same moment in which the daemon stops it."""

    async def step(_conv_id, _manual):
        return False

    worker = Worker(step, SystemClock(), parallel=1)
    worker.start()
    worker.schedule(1, 3600.0)
    await asyncio.sleep(0.01)
    with worker.answering(lambda _conv_id: False):
        pass
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.wait({stopping}, timeout=2.0)
    assert stopping.done()
