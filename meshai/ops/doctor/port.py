"""The way to the node: which port, is it there, who holds it. Nothing is opened here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from meshai.errors import LinkDownError
from meshai.ops.doctor.base import Check, Context, fail, ok, skip

LISTING = "ls -l /dev/serial/by-id/, and set connection.serial_port to the path of the node"


def check_port(ctx: Context) -> Iterator[Check]:
    """A serial node's port exists and belongs to nobody but the daemon."""
    connection = ctx.settings.connection
    if connection.type != "serial":
        return
    from meshai.radio import discover

    try:
        device = discover.find_port(connection.serial_port, by_id=ctx.at(str(discover.BY_ID)))
    except LinkDownError as error:
        yield fail("port", str(error), f"plug the node in with a cable that carries data; {LISTING}")
        return
    if not ctx.at(device).exists():
        yield fail("port", f"{device} is not there: unplugged, rebooting, or another name", LISTING)
        return
    yield _holder(ctx, device)


def holders(ctx: Context, device: str) -> dict[int, str]:
    """Processes that have a device open, with their names; only our own user's unless we are root."""
    target = os.path.realpath(ctx.at(device))
    found: dict[int, str] = {}
    for entry in ctx.at("/proc").glob("[0-9]*"):
        if any(_leads_to(link, target) for link in _links(entry / "fd")):
            found[int(entry.name)] = ctx.read(f"/proc/{entry.name}/comm") or "?"
    return found


def _holder(ctx: Context, device: str) -> Check:
    daemon = int(ctx.facts["pid"]) if ctx.facts else 0
    strangers = {pid: name for pid, name in holders(ctx, device).items() if pid not in (daemon, os.getpid())}
    if strangers and not (ctx.daemon_runs and not daemon):
        listed = ", ".join(f"{name} (process {pid})" for pid, name in sorted(strangers.items()))
        return fail("port", f"{device} is held by {listed}", _ending(strangers))
    if ctx.daemon_runs:
        return ok("port", f"{device}, the daemon's")
    if os.geteuid() != 0 and not os.access(ctx.at(device), os.R_OK | os.W_OK):
        return skip("port", f"{device} is there, but not for you", "sudo meshai doctor")
    return ok("port", f"{device} is there and free")


def _ending(strangers: dict[int, str]) -> str:
    names = set(strangers.values())
    if "gpsd" in names:
        return "sudo systemctl disable --now gpsd.socket gpsd"
    if "ModemManager" in names:
        return "sudo systemctl disable --now ModemManager, or the udev rule: sudo meshai service install"
    return f"end that program: sudo kill {' '.join(map(str, sorted(strangers)))}"


def _links(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # ended meanwhile, or another user's
        return []


def _leads_to(link: Path, target: str) -> bool:
    try:
        return str(link.readlink()) == target
    except OSError:
        return False
