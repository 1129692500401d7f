"""What a person gains by streamed parts: time to the first packet with slow models, against waiting for the answer.

    python -m benchmarks.bench_stream [--quick]

The daemon's own parts and real HTTP to the scripted server, which writes one word (a token here) at a time. The answer
has about 480 bytes, three parts. The radio is a value that takes a packet at once; spacing is off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import result, row
from benchmarks.rig import Station
from meshai.clock import SystemClock
from meshai.config.model import Settings
from meshai.llm.registry import open_model
from meshai.llm.scripted import Reply, ScriptedServer

ANSWER = (
    "The summit is about nine miles from the old bridge, and most people need five hours for the way up. Take the path "
    "along the stream until the hut, where you find water and a roof. Behind the hut the trail gets steep, and after "
    "rain the stones are slippery, so take your time there. From the saddle you already hear the relay well, also "
    "with a small antenna. Start early, because the storms of these weeks come after noon, and be back at the hut by "
    "then."
)


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run, and return rows and numbers."""
    parser = argparse.ArgumentParser(prog="bench_stream")
    parser.add_argument("--quick", action="store_true", help="twenty times as fast")
    options, _ = parser.parse_known_args(list(argv))
    factor = 20 if options.quick else 1
    measured = {}
    for rate in (5, 10, 50):
        with tempfile.TemporaryDirectory(prefix="meshai-stream-") as folder:
            measured[rate] = asyncio.run(_measure(Path(folder), float(rate * factor)))
    rows = [
        row(
            f"first packet at {rate * factor} tokens/s, against the whole answer",
            "earlier",
            f"{first:.1f} s against {whole:.1f} s ({100 * (1 - first / whole):.0f} % earlier)",
            first < whole,
        )
        for rate, (first, whole) in measured.items()
    ]
    return result(rows, first_and_whole_s={str(rate * factor): pair for rate, pair in measured.items()})


async def _measure(directory: Path, rate: float) -> tuple[float, float]:
    """Seconds from the question to the first packet, and to the model's last word."""
    times: list[float] = []
    async with ScriptedServer() as server:
        server.reply(Reply(ANSWER, tokens_per_s=rate))
        endpoint = {"name": "scripted", "base_url": server.base_url, "model": "scripted", "context_tokens": 4096}
        settings = Settings.model_validate({"llm": {"endpoints": [endpoint]}})
        model = open_model(settings, clock=SystemClock())
        async with Station(directory / "meshai.db", model, llm={"endpoints": [endpoint]}) as station:
            station.link.on_send = lambda _: times.append(time.perf_counter())
            await station.quiet()
            begun = time.perf_counter()
            station.hear(station.dm("How do I get to the summit? Please in detail.", 1))
            await server.wait_for_requests(1)
            while not server.requests[0].done:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.002)
            whole = time.perf_counter() - begun
            await station.quiet()
    return round(times[0] - begun, 2), round(whole, 2)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
