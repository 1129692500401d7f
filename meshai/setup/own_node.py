"""The bot's own node for ``identity show``: from the running daemon, else read for a moment."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from meshai.clock import SystemClock
from meshai.config.loader import load_settings
from meshai.errors import MissingError, RadioError
from meshai.ops import control, paths
from meshai.radio.link import NodeInfo
from meshai.setup import node as nodes


def own_node(config: Path | None) -> NodeInfo:
    """Raises MissingError when neither a daemon nor the node answers."""
    loaded = load_settings(config, os.environ)
    database = paths.find_database(loaded.settings.storage.database, loaded.source, os.environ)
    socket = paths.find_control_socket(database, os.environ)
    if socket is not None and control.is_answered(socket):
        return nodes.from_daemon(control.call(socket, "node.show"))
    logging.getLogger().addHandler(logging.NullHandler())  # the link's log lines; the failure is told below
    try:
        return asyncio.run(nodes.read(loaded.settings.connection, SystemClock()))
    except RadioError as error:
        raise MissingError(f"no daemon is running, and the node cannot be read: {error}") from None
