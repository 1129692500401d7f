"""Ten thousand messages: how much does the daemon grow?

    python -m benchmarks.bench_soak [--messages 10000] [--quick]

The daemon's own parts on a real database, a hundred people, questions with answers of one to three parts, commands
among them, compactions in the background; clock, radio and model are values, and an hour passes in seconds. Resident
size is read after a warm-up of a tenth as many messages and at the end, both times after the garbage collector. Run as
``python -m benchmarks`` does: in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import result, row, rss_mb
from benchmarks.rig import FastClock, PlainModel, Station

PEOPLE = 100
AT_ONCE = 10
SPEED = 300.0
SENTENCE = "The relay on the ridge hears you well, and the battery lasts until noon. "
SUMMARY = (
    "They talked about the relay on the ridge, the battery of the hut and the way to the summit, at 9 and at noon."
)
COMMANDS = ("!ping", "!status", "!help", "!memory", "!facts")


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run, and return rows and numbers."""
    parser = argparse.ArgumentParser(prog="bench_soak")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="200 messages")
    options, _ = parser.parse_known_args(list(argv))
    messages = 200 if options.quick else options.messages
    logging.getLogger("meshai").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="meshai-soak-") as folder:
        figures = asyncio.run(_soak(Path(folder), messages))
    grown = figures["grown_mb"]
    rows = [
        row(f"growth over {messages:,} messages, resident", "<= 5 MB", f"{grown:.1f} MB", grown <= 5),
        row("answers and packets meanwhile", "", f"{figures['answered']:,} and {figures['packets']:,}"),
    ]
    return result(rows, **figures)


async def _soak(directory: Path, messages: int) -> dict[str, Any]:
    rng = random.Random(11)
    model = PlainModel(lambda _: SENTENCE * rng.randint(1, 7), SUMMARY)
    async with Station(directory / "meshai.db", model, clock=FastClock(SPEED)) as station:
        await _talk(station, rng, max(50, messages // 10))
        before = _settled_rss()
        begun = time.perf_counter()
        curve = []
        for tenth in range(10):
            await _talk(station, rng, messages // 10)
            curve.append(round(_settled_rss() - before, 2))
            logging.getLogger(__name__).info("%d of 10", tenth + 1)
        took = time.perf_counter() - begun
        answered = await station.db.fetch_value("SELECT count(*) FROM inbound WHERE state = 'answered'")
    return {
        "before_mb": round(before, 1),
        "grown_mb": curve[-1],
        "curve_mb": curve,
        "answered": answered,
        "packets": station.link.sent,
        "memory_calls": model.completed,
        "per_s": round(messages / took, 1),
    }


async def _talk(station: Station, rng: random.Random, count: int) -> None:
    for begin in range(0, count, AT_ONCE):
        for number in range(min(AT_ONCE, count - begin)):
            text = (
                rng.choice(COMMANDS) if rng.random() < 0.1 else f"How is place {rng.randrange(10**6)} in the {number}?"
            )
            station.hear(station.dm(text, rng.randrange(PEOPLE)))
        await station.quiet()


def _settled_rss() -> float:
    gc.collect()
    return rss_mb()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
