"""How subcommands reach the data: through the running daemon, or directly under the lock when none runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshai.config.model import Settings


BEGINS_DATABASE = frozenset({"memory.import"})
"""Moving to a new computer begins with taking the archive along, before the first ``meshai run``."""


def ask(
    config: Path | None,
    name: str,
    args: Mapping[str, object] | None = None,
    *,
    timeout_s: float = 60.0,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Any:  # noqa: ANN401 - JSON
    """Run an operation in the daemon, or here when no daemon runs. Raises what the operation raises."""
    from meshai.config.loader import load_settings
    from meshai.errors import MissingError
    from meshai.ops import control, paths

    loaded = load_settings(config, os.environ)
    database = paths.find_database(loaded.settings.storage.database, loaded.source, os.environ)
    socket = paths.find_control_socket(database, os.environ)
    if socket is not None and control.is_answered(socket):
        return control.call(socket, name, args, timeout_s=timeout_s, progress=progress)
    if not database.exists() and name in BEGINS_DATABASE:
        paths.make_private_dir(database.parent)
    elif not database.exists():
        raise MissingError(f"there is no database at {database} yet: it begins with the first meshai run")
    return asyncio.run(_directly(loaded.settings, database, name, args or {}, progress))


async def _directly(
    settings: Settings, database: Path, name: str, args: Mapping[str, object], progress: Callable[[int, int, str], None]
) -> object:
    from meshai.clock import SystemClock
    from meshai.llm.registry import open_model, open_summarizer
    from meshai.memory.memory import Memory
    from meshai.operations import operations
    from meshai.ops.lock import DatabaseLock
    from meshai.ops.paths import lock_path
    from meshai.storage.database import Database

    clock = SystemClock()
    with DatabaseLock(lock_path(database)):
        async with contextlib.AsyncExitStack() as stack:
            db = await Database.open(database)
            stack.push_async_callback(db.close)
            model = open_model(settings, clock=clock)
            stack.push_async_callback(model.aclose)
            summariser = open_summarizer(settings, model, clock=clock)
            memory = Memory(db, settings.memory, model, clock, boot_id=secrets.token_hex(8), summariser=summariser)
            return await operations(db, clock, memory, lambda: settings)[name](args, progress)
