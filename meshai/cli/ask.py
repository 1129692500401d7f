"""How subcommands reach the data: through the running daemon, or directly under the lock when none runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def ask(config: Path | None, name: str, args: Mapping[str, object] | None = None, *, timeout_s: float = 60.0) -> Any:  # noqa: ANN401 - JSON
    """Run an operation in the daemon, or here when no daemon runs. Raises what the operation raises."""
    from meshai.config.loader import load_settings
    from meshai.errors import MissingError
    from meshai.ops import control, paths

    loaded = load_settings(config, os.environ)
    database = paths.database_path(loaded.settings.storage.database, os.environ)
    socket = paths.find_control_socket(database, os.environ)
    if socket is not None and control.is_answered(socket):
        return control.call(socket, name, args, timeout_s=timeout_s)
    if not database.exists():
        raise MissingError(f"there is no database at {database} yet: it begins with the first meshai run")
    return asyncio.run(_directly(loaded.settings, database, name, args or {}))


async def _directly(settings: Any, database: Path, name: str, args: Mapping[str, object]) -> object:  # noqa: ANN401 - late import
    from meshai.clock import SystemClock
    from meshai.operations import Operations
    from meshai.ops.lock import DatabaseLock
    from meshai.ops.paths import lock_path
    from meshai.storage.database import Database

    with DatabaseLock(lock_path(database)):
        db = await Database.open(database)
        try:
            return await Operations(db, SystemClock(), settings=settings).table()[name](args)
        finally:
            await db.close()
