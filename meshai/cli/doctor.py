"""``meshai doctor``: checks everything an installation needs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from meshai.cli.text import printable

if TYPE_CHECKING:
    from meshai.ops.doctor.base import Check

MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red"), "skip": ("skip", "cyan")}


@click.command(short_help="Check everything an installation needs.")
@click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--no-node", is_flag=True, help="Do not connect to the node, even if no daemon runs.")
def command(config: Path | None, *, as_json: bool, no_node: bool) -> None:
    """Check everything an installation needs; each failure comes with what to type. Exit 1 if any check fails.

    A running daemon keeps its node and is asked instead. Without one, the node is connected to directly: messages
    that waited in it for the bot are then gone (--no-node leaves it alone). Each model is asked for one word.
    """
    from meshai.ops import log as logs
    from meshai.ops.doctor import examine

    logs.setup("error")  # the findings say it; the library's and our own warnings would say it again
    found = asyncio.run(examine(config, os.environ, leave_node="--no-node" if no_node else ""))
    if as_json:
        click.echo(json.dumps([check.as_dict() for check in found], indent=2, ensure_ascii=False))
    else:
        for check in found:
            _show(check)
        click.echo(_total(found))
    sys.exit(1 if any(check.status == "fail" for check in found) else 0)


def _show(check: Check) -> None:
    mark, colour = MARKS[check.status]
    first, *more = [printable(line) for line in check.text.split("\n")]
    click.echo(f"{click.style(mark, fg=colour)}  {check.name}: {first}")
    for line in more:
        click.echo(f"      {line}")
    if check.fix:
        click.echo(f"      fix: {printable(_here(check.fix))}")


def _here(fix: str) -> str:
    """With this program's full path: root has another PATH."""
    program = Path(sys.argv[0])
    return fix.replace("sudo meshai ", f"sudo {program.absolute()} ") if program.name == "meshai" else fix


def _total(found: list[Check]) -> str:
    counts = {status: sum(check.status == status for check in found) for status in MARKS}
    return f"{counts['fail']} failed, {counts['warn']} to look at, {counts['ok']} well, {counts['skip']} not checked"
