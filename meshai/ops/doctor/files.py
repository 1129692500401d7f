"""The configuration and who may read what."""

from __future__ import annotations

import getpass
import grp
import os
from collections.abc import Iterator
from pathlib import Path

from meshai.ops.doctor.base import Check, Context, fail, ok, skip, warn
from meshai.ops.paths import SERVICE_CONFIG

GROUP = "dialout"
KEY_FILE = "/etc/meshai/llm_api_key"


def check_configuration(ctx: Context, mistakes: str = "") -> Iterator[Check]:
    """The file is right; what is allowed but rarely meant."""
    if ctx.loaded is None:
        closed = "try again with sudo" in mistakes
        fix = "sudo meshai doctor" if closed else "meshai config check FILE, with the file named above"
        yield fail("configuration", mistakes, fix)
        return
    loaded = ctx.loaded
    overridden = f", {len(loaded.overrides)} values from the environment" if loaded.overrides else ""
    yield ok("configuration", f"{loaded.name}{overridden}")
    for warning in loaded.warnings:
        yield warn("configuration", warning)


def check_permissions(ctx: Context) -> Iterator[Check]:
    """Secrets and conversations are for their owner only."""
    loose = [path for path in _private_files(ctx) if _is_open(path)]
    for path in loose:
        yield fail("permissions", f"other users can read {path}", f"sudo chmod 600 {path}")
    if not loose:
        yield ok("permissions", "keys and database are closed to other users")


def check_dialout(ctx: Context) -> Iterator[Check]:
    """Whoever runs the daemon may open serial ports."""
    if ctx.settings.connection.type != "serial":
        return
    if ctx.loaded is not None and ctx.loaded.source == SERVICE_CONFIG:
        yield ok("serial ports", f"the service has the group {GROUP} from its unit")
        return
    if os.geteuid() == 0:
        yield skip("serial ports", "root may open every port; run this as the daemon's user to see what that one may")
        return
    try:
        group = grp.getgrnam(GROUP).gr_gid
    except KeyError:
        yield skip("serial ports", f"this system has no group {GROUP}")
        return
    if group in os.getgroups():
        yield ok("serial ports", f"you are in the group {GROUP}")
        return
    user = getpass.getuser()
    yield fail(
        "serial ports", f"{user} is not in the group {GROUP}", f"sudo usermod -aG {GROUP} {user}, then log in again"
    )


def _private_files(ctx: Context) -> Iterator[Path]:
    """What exists of the files nobody else may read."""
    keys = [Path(end.api_key_file).expanduser() for end in ctx.settings.llm.endpoints if end.api_key_file]
    beside = [ctx.database.with_name(ctx.database.name + suffix) for suffix in ("-wal", "-shm")]
    for path in (*keys, ctx.at(KEY_FILE), ctx.database, *beside):
        if os.path.lexists(path) and os.access(path.parent, os.X_OK):
            yield path


def _is_open(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
        around = path.parent.stat().st_mode
    except OSError:
        return False
    return bool(mode & 0o077) and bool(around & 0o011)  # in a closed directory nobody gets to it
