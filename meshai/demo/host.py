"""Running something on a stage from the command line: temporary directory, log, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from meshai.errors import MissingError
from meshai.ops import log as logs

LONGEST_PLACE = 75
"""Bytes; the name of the directory and of the control socket follow."""


def host(play: Callable[[Path], Awaitable[None]], *, verbose: bool) -> None:
    """Run ``play`` in a temporary directory that is gone afterwards, whatever happens.

    SIGTERM ends it as Ctrl-C does. Raises what ``play`` raises, KeyboardInterrupt, and MissingError without a place
    for temporary files. The daemon's log goes to stderr when ``verbose``, else nowhere.
    """
    if verbose:
        logs.setup("info")
    else:
        logging.getLogger().addHandler(logging.NullHandler())  # without a handler Python prints warnings by itself
    try:
        directory = tempfile.TemporaryDirectory(prefix="meshai-", dir=_place(), ignore_cleanup_errors=True)
    except OSError as error:
        raise MissingError(f"there is no place for temporary files: {error.strerror or 'error'}") from None
    with directory as path:
        asyncio.run(_until_told(play(Path(path))))


def _place() -> str:
    """Where temporary files go; a Unix socket in it must not have a path of more than 107 bytes."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= LONGEST_PLACE else "/tmp"  # noqa: S108 - the directory in it is private


async def _until_told(playing: Awaitable[None]) -> None:
    """Cancel on SIGTERM; asyncio.run does the same for Ctrl-C."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(playing)
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
