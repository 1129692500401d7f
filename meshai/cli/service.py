"""``meshai service …``: MeshAI as a system service."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from meshai.ops.install import Place, Step

ROOT = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    help="Another system's root directory: files only, nothing is started.",
)


@click.group(short_help="Install the system service, update it, look at it.")
def command() -> None:
    """Install MeshAI as a system service, update it, take it away, look at it."""


@command.command()
@ROOT
@click.option("--python", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The interpreter to use.")
def install(root: Path, python: Path | None) -> None:
    """Install the service, or update it: program in /opt/meshai, user, udev rule, unit. Needs root.

    Only what is missing or differs is touched. A configuration that exists stays as it is.
    """
    from meshai.ops import install as plans
    from meshai.ops.system import must

    os.umask(0o022)  # the service's user must be able to read what root installs
    place = plans.Place(root.absolute(), python) if python else plans.Place(root.absolute())
    plans.check(place)
    steps = plans.install_plan(place, must)
    fresh = not plans.has_configuration(place)
    _need_root(place, "install", steps)
    plans.carry_out(steps, click.echo)
    more = plans.start_plan(place, must, changed=bool(steps), fresh_config=fresh)
    plans.carry_out(more, click.echo)
    if not steps and not more:
        click.echo("all is in place already")
    if fresh:
        click.echo(f"next: sudo nano {place.at(plans.CONFIG_PATH)}; sudo systemctl start meshai")


@command.command()
@ROOT
def uninstall(root: Path) -> None:
    """Stop the service and remove unit and udev rule. Data, configuration and program stay. Needs root."""
    from meshai.ops import install as plans
    from meshai.ops.system import must

    place = plans.Place(root.absolute())
    steps = plans.uninstall_plan(place, must)
    _need_root(place, "uninstall", steps)
    plans.carry_out(steps, click.echo)
    if not steps:
        click.echo("the service is not installed")
    left = [str(place.at(path)) for path in (plans.PROGRAM, plans.CONFIG_PATH.parent, plans.STATE_PATH)]
    left = [path for path in left if Path(path).exists()]
    if left:
        click.echo(f"still there; to remove that, too, memory included: sudo rm -r {shlex.join(left)}")


@command.command()
@ROOT
def status(root: Path) -> None:
    """Tell whether the service is installed and up to date; exit 1 when something differs, 3 when it is not there."""
    from meshai import __version__
    from meshai.errors import MissingError
    from meshai.ops import install as plans
    from meshai.ops import venv

    place = plans.Place(root.absolute())
    unit = plans.compare(place.at(plans.UNIT_PATH), plans.shipped(plans.UNIT))
    if unit == "missing":
        raise MissingError(f"the service is not installed: {plans.sudo('install')}")
    rule = plans.compare(place.at(plans.RULES_PATH), plans.shipped(plans.RULES))
    program = venv.installed_version(place.at(plans.PROGRAM))
    click.echo(f"unit       {unit} ({place.at(plans.UNIT_PATH)}){_than(unit)}")
    click.echo(f"udev rule  {rule} ({place.at(plans.RULES_PATH)}){_than(rule)}")
    click.echo(f"program    {program or 'missing'} ({place.at(plans.PROGRAM)}); this one is {__version__}")
    if place.is_live:
        click.echo(f"state      {plans.state_of_service()}")
    if not {unit, rule} <= {"current", "edited"} or program != __version__:
        click.echo(f"to bring it up to date: {plans.sudo('install')}")
        sys.exit(1)


def _than(state: str) -> str:
    from meshai import __version__

    return f", not the one of this program ({__version__})" if state in ("older", "newer", "edited") else ""


def _need_root(place: Place, verb: str, steps: list[Step]) -> None:
    """Without root nothing is tried: what to type instead is told."""
    from meshai.errors import MissingError
    from meshai.ops import install as plans

    if os.geteuid() == 0 or not steps or not place.is_live:
        return
    by_hand = "\n".join(f"  sudo sh -c {shlex.quote(step.command)}" for step in steps)
    raise MissingError(f"this needs root:\n  {plans.sudo(verb)}\nwhich does:\n{by_hand}")
