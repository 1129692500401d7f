"""Everything an installation needs, looked at one by one; each failure with what to type (``meshai doctor``).

Beside a running daemon nothing is taken from it: the node is asked about over the control socket, the database is
only read. A check that breaks is a finding of its own; the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from meshai.config.loader import load_settings
from meshai.errors import ConfigError, MeshAIError
from meshai.ops import control, lock, paths
from meshai.ops.doctor import daemon, data, files, machine, model, node, port
from meshai.ops.doctor.base import Check, Context, fail

log = logging.getLogger(__name__)

STATUS_TIMEOUT_S = 8.0
REPORT = "MESHAI_DEBUG=1 meshai doctor, and report it with what that prints"


async def examine(
    config: Path | None,
    env: Mapping[str, str],
    *,
    leave_node: str = "",
    prepared: Callable[[Context], None] = lambda _ctx: None,
) -> list[Check]:
    """All findings, in the order an operator would look. ``prepared`` may change what the checks are given."""
    ctx, mistakes = _context(config, env)
    ctx.leave_node = leave_node
    prepared(ctx)
    silence = await asyncio.to_thread(_ask_daemon, ctx)
    plain: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("configuration", lambda: files.check_configuration(ctx, mistakes)),
        ("daemon", lambda: daemon.check_daemon(ctx, silence)),
        ("service", lambda: daemon.check_service(ctx)),
        ("permissions", lambda: files.check_permissions(ctx)),
        ("serial ports", lambda: files.check_dialout(ctx)),
        ("port", lambda: port.check_port(ctx)),
    )
    later: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("tokens", lambda: model.check_vocabulary(ctx)),
        ("database", lambda: data.check_database(ctx)),
        ("copies", lambda: data.check_copies(ctx)),
        ("answers", lambda: data.check_people(ctx)),
        ("disk", lambda: machine.check_disk(ctx)),
        ("power", lambda: machine.check_power(ctx)),
        ("clock", lambda: machine.check_clock(ctx)),
        ("processor", lambda: machine.check_processor(ctx)),
        ("python", lambda: machine.check_python(ctx)),
    )
    found: list[Check] = []
    for name, check in plain:
        found += await _guarded(name, _in_thread(check))
    if any(check.name == "port" and check.status == "fail" for check in found):
        ctx.leave_node = "see the port"  # gone, or somebody else's: opening it would only disturb
    found += await _guarded("node", node.check_node(ctx))
    found += await _guarded("model", model.check_models(ctx))
    for name, check in later:
        found += await _guarded(name, _in_thread(check))
    return found


def _context(config: Path | None, env: Mapping[str, str]) -> tuple[Context, str]:
    """What there is to look at, and the mistakes of the configuration."""
    try:
        loaded = load_settings(config, env)
    except ConfigError as error:
        return Context(env, None, _database("", None, env)), str(error)
    return Context(env, loaded, _database(loaded.settings.storage.database, loaded.source, env)), ""


def _database(configured: str, source: Path | None, env: Mapping[str, str]) -> Path:
    try:
        return paths.find_database(configured, source, env)
    except MeshAIError:  # no home directory: the service's is the only one it can be
        return paths.SERVICE_STATE / paths.DATABASE


def _ask_daemon(ctx: Context) -> str:
    """Fill in what the running daemon says; returns why it says nothing."""
    socket = paths.find_control_socket(ctx.database, ctx.env)
    if socket is not None and control.is_answered(socket):
        ctx.daemon_runs = True
        try:
            ctx.facts = control.call(socket, "status", timeout_s=STATUS_TIMEOUT_S)
        except MeshAIError as error:
            return str(error)
        _use_its_database(ctx, ctx.facts)
        return ""
    held = lock.is_held(paths.lock_path(ctx.database))
    ctx.daemon_runs = held is not False or daemon.is_service_active(ctx)
    if held:
        return "it is starting, stopping, or hangs"
    # Who may not look must not take the node from a daemon that may be there.
    return "no permission to see it" if ctx.daemon_runs else ""


def _use_its_database(ctx: Context, facts: Mapping[str, Any] | None) -> None:
    if facts and facts.get("database"):
        ctx.database = Path(str(facts["database"]))


async def _in_thread(check: Callable[[], Iterable[Check]]) -> list[Check]:
    return await asyncio.to_thread(lambda: list(check()))


async def _guarded(name: str, check: Awaitable[list[Check]]) -> list[Check]:
    try:
        return await check
    except Exception as error:  # a check that breaks must not hide what the others find
        log.debug("the check %s broke", name, exc_info=True)
        return [fail(name, f"this check itself broke: {type(error).__name__}: {error}", REPORT)]
