"""The daemon and its service."""

from __future__ import annotations

from collections.abc import Iterator

from meshai.ops import install
from meshai.ops.doctor.base import Check, Context, fail, ok, skip, warn
from meshai.ops.humanize import duration

PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,NRestarts,ExecMainStatus"
MANY_RESTARTS = 5
LOOK = "journalctl -u meshai -e"


def is_service_active(ctx: Context) -> bool:
    """Whether systemd runs the service; for whom the socket is closed, that is all there is to see."""
    answer = ctx.ask(["systemctl", "is-active", install.UNIT])
    return answer is not None and answer.out.strip() in ("active", "activating", "reloading")


def check_daemon(ctx: Context, silence: str = "") -> Iterator[Check]:
    """It runs and answers. ``silence``: why it did not."""
    if ctx.facts is not None:
        facts = ctx.facts
        text = f"MeshAI {facts['version']}, process {facts['pid']}, up {duration(facts['uptime_s'])}"
        if facts.get("unwell"):
            yield fail("daemon", f"{text}, unwell: {facts['unwell']}", "sudo systemctl restart meshai")
        else:
            yield ok("daemon", text)
    elif "permission" in silence:
        yield skip("daemon", "you may not talk to it, nor see whether it runs", "sudo meshai doctor")
    elif ctx.daemon_runs:
        yield fail("daemon", silence or "it runs but cannot be reached", f"{LOOK}; sudo systemctl restart meshai")
    else:
        yield skip("daemon", "none runs", "sudo systemctl start meshai, or: meshai run")


def check_service(ctx: Context) -> Iterator[Check]:
    """Installed, up to date, started with the computer, not failing again and again."""
    if not ctx.at("/run/systemd/system").is_dir():
        yield skip("service", "systemd does not run this computer")
        return
    answer = ctx.ask(["systemctl", "show", install.UNIT, f"--property={PROPERTIES}"])
    facts = dict(line.partition("=")[::2] for line in (answer.out if answer else "").splitlines())
    if facts.get("LoadState") != "loaded":
        yield skip("service", "not installed", "sudo meshai service install")
        return
    yield _state(facts)
    if facts.get("UnitFileState") not in ("enabled", "enabled-runtime", "static"):
        yield warn("service", "it does not start with the computer", "sudo systemctl enable meshai")
    unit = install.compare(ctx.at(str(install.UNIT_PATH)), install.shipped(install.UNIT))
    rule = install.compare(ctx.at(str(install.RULES_PATH)), install.shipped(install.RULES))
    if "older" in (unit, rule):
        yield warn(
            "service", "the installed unit or udev rule is older than this program", "sudo meshai service install"
        )
    if rule == "missing" and ctx.settings.connection.type == "serial":
        yield warn(
            "service", "the udev rule is missing: ModemManager may disturb the node", "sudo meshai service install"
        )


def _state(facts: dict[str, str]) -> Check:
    active, restarts = facts.get("ActiveState", ""), facts.get("NRestarts", "0")
    text = f"{active} ({facts.get('SubState', '')})"
    if active == "failed":
        why = {"2": ": the configuration has mistakes", "3": ": something is missing"}.get(
            facts.get("ExecMainStatus", ""), ""
        )
        return fail("service", text + why, f"{LOOK}; then: sudo systemctl restart meshai")
    if restarts.isdecimal() and int(restarts) >= MANY_RESTARTS:
        return warn("service", f"{text}, restarted {restarts} times by itself", LOOK)
    if active != "active":
        return warn("service", text, "sudo systemctl start meshai")
    return ok("service", text)
