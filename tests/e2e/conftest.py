"""Worlds for whole-program tests; all real: TCP, HTTP, SQLite, the stock library."""

from contextlib import AsyncExitStack

import pytest
from support.e2e_world import Process, World


@pytest.fixture
async def build(tmp_path):
    """Make a world with settings of one's own: ``await build(World, reply={"max_parts": 2})``."""
    async with AsyncExitStack() as stack:

        async def make(kind=World, **more):
            return await stack.enter_async_context(kind(tmp_path, **more))

        yield make


@pytest.fixture
async def world(build):
    """The daemon in this process, connected, with a scripted model."""
    return await build()


@pytest.fixture
async def process(build):
    """A mesh and a scripted model; ``await process.start()`` runs the daemon as a process of its own."""
    return await build(Process)
