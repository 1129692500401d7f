"""100 000 mutated frames through the whole receive path (the test does 24 000): exceptions, error lines, growth.

``python -m benchmarks.bench_fuzz [--frames N] [--seed S]``; needs the tests of a checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import result, row, rss_mb

FRAMES = 100_000
WARM_UP = 10_000
GROWTH_MB = 10.0
"""An hour of rates and duplicates of some thousand forged senders, and the allocator's own noise."""


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run it; raises AssertionError for what the tables or the bot's answer afterwards disprove."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="5 000 frames")
    options, _ = parser.parse_known_args(list(argv))
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    with tempfile.TemporaryDirectory() as directory:
        figures = asyncio.run(_run(Path(directory), 5_000 if options.quick else options.frames, options.seed))
    broken, grown = figures["exceptions"] + figures["error_lines"], figures["grown_mb"]
    return result(
        [
            row(f"{figures['frames']} mutated frames: exceptions and error lines", "0", str(broken), broken == 0),
            row("growth meanwhile", f"<= {GROWTH_MB:g} MB", f"{grown:.1f} MB", grown <= GROWTH_MB),
        ],
        **figures,
    )


async def _run(directory: Path, frames: int, seed: int) -> dict[str, float]:
    from support.fuzz_run import NODE, Fuzz  # type: ignore[import-not-found]
    from support.station import Station  # type: ignore[import-not-found]

    lines = _ErrorLines()
    logging.getLogger("meshai").addHandler(lines)
    station = Station(directory / "meshai.db", channels=[{"name": "bot"}], access={"require_pki": False})
    station.link.node = NODE
    await station.start()
    try:
        fuzz = Fuzz(station, seed)
        await fuzz.run(WARM_UP)
        before, began = rss_mb(), time.perf_counter()
        await fuzz.run(frames)
        took_s, grown_mb = time.perf_counter() - began, rss_mb() - before
        await fuzz.check_tables()
        assert await fuzz.still_answers(), "the bot is deaf after the frames"
    finally:
        await station.stop()
        logging.getLogger("meshai").removeHandler(lines)
    return {
        "frames": frames, "parsed": fuzz.parsed, "values": fuzz.values, "exceptions": len(fuzz.errors),
        "error_lines": lines.count, "grown_mb": round(grown_mb, 2), "seconds": round(took_s, 1),
    }  # fmt: skip


class _ErrorLines(logging.Handler):
    """Counts what the program itself calls an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        print(f"error line: {record.getMessage()}")


if __name__ == "__main__":
    for line in main(sys.argv[1:])["rows"]:
        print(line)
