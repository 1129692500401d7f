"""``meshai demo``: the whole program on a virtual mesh, in well under a minute."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import click

LOSS = 0.1
"""Of the transmissions over a link; the firmware repeats, so that it only costs time."""


@click.command(short_help="Watch a conversation on a virtual mesh; needs no hardware.")
@click.option(
    "--speed", type=click.FloatRange(5, 60), default=20.0, show_default=True, help="Times faster than a real mesh."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the losses on the air.")
@click.option("-v", "--verbose", is_flag=True, help="Show the daemon's log, too.")
def command(speed: float, seed: int, *, verbose: bool) -> None:
    """Play a conversation with the real daemon on a virtual mesh; exit 1 if anything is not as it should be.

    No hardware, no network, no key, no language model; what it writes goes into a temporary directory that is deleted.
    """
    from meshai.demo.host import host
    from meshai.demo.printer import Printer
    from meshai.demo.script import Play
    from meshai.demo.stage import Stage

    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    printer = Printer.on(sys.stdout, os.environ, width=width)
    began = time.monotonic()

    async def play(directory: Path) -> None:
        async with Stage(directory, speed=speed, seed=seed, loss=LOSS) as stage:
            story = Play(stage, printer)
            await story.run()
            totals = story.totals
        printer.line()
        printer.line(
            f"All as it should be: {totals.messages} messages, {totals.packets} packets of the bot's, "
            f"{totals.airtime_ms / 1000:.0f} s on the air; {time.monotonic() - began:.0f} s of your time."
        )
        printer.line("Next: `meshai chat` to talk to it yourself, `meshai run` with a node of yours.")

    host(play, verbose=verbose)
