"""Start and rest: ``meshai --help``, ``meshai run`` until READY=1 and until it has its node, memory when idle.

    python -m benchmarks.bench_start [--runs 10] [--quick]

Processes of their own, as systemd starts them; the node is virtual, on TCP, and knows 100 nodes. The memory is
resident size (VmRSS) after one question was answered through the scripted server, which loads everything that is
loaded late. The token estimate is in use; tiktoken's vocabulary would add its own size.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import result, row, rss_mb
from benchmarks.rig import Bot
from meshai.llm.scripted import ScriptedServer
from meshai.radio.virtual import DefaultMesh, NodeSettings, default_mesh

NODES = 100


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run, and return rows and numbers."""
    parser = argparse.ArgumentParser(prog="bench_start")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one run of each")
    options, _ = parser.parse_known_args(list(argv))
    runs = 1 if options.quick else options.runs
    help_s = sorted(_help_s() for _ in range(runs))
    with tempfile.TemporaryDirectory(prefix="meshai-start-") as folder:
        starts, rss = asyncio.run(_starts(Path(folder), max(1, runs // 2)))
    ready = sorted(start[0] for start in starts)
    linked = sorted(start[1] for start in starts)
    middle, half = len(help_s) // 2, len(ready) // 2
    rows = [
        row("meshai --help, median", "<= 0.15 s", f"{help_s[middle]:.3f} s", help_s[middle] <= 0.15),
        row("meshai run until READY=1, median", "<= 2 s", f"{ready[half]:.2f} s", ready[half] <= 2),
        row(f"meshai run until it has its node ({NODES} nodes)", "", f"{linked[half]:.2f} s"),
        row("idle after a first exchange, resident", "<= 90 MB", f"{rss:.1f} MB", rss <= 90),
    ]
    return result(rows, help_s=help_s, ready_s=ready, linked_s=linked, rss_mb=round(rss, 1))


def _help_s() -> float:
    command = Path(sys.executable).with_name("meshai")
    begun = time.perf_counter()
    subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


async def _starts(directory: Path, runs: int) -> tuple[list[tuple[float, float]], float]:
    virtual = default_mesh(speed=50.0, loss=0.0, preset="SHORT_TURBO", direct=True)
    _populate(virtual)
    async with ScriptedServer() as server:
        await virtual.start()
        bot = Bot(directory, **settings_for(virtual, server))
        try:
            starts = []
            for number in range(runs):
                begun = time.perf_counter()
                ready = await bot.start_until_ready(dict(os.environ))
                await _until_linked(bot)
                starts.append((ready, time.perf_counter() - begun))
                if number < runs - 1:
                    await bot.end()
            phone = virtual.phones[0]
            await phone.send_dm(virtual.bot, "How far is the summit?")
            await phone.wait_for(lambda message: bool(message.text), 20)
            await asyncio.sleep(2)
            rss = rss_mb(bot.pid)
            await bot.end()
        finally:
            await bot.kill()
            await virtual.stop()
    return starts, rss


def settings_for(virtual: DefaultMesh, server: ScriptedServer) -> dict[str, dict[str, Any]]:
    """A configuration for ``meshai run`` on a virtual mesh that is much faster than life."""
    endpoint = {"name": "scripted", "base_url": server.base_url, "model": "scripted", "context_tokens": 4096}
    return {
        "connection": {"type": "tcp", "tcp_host": virtual.bot_host, "tcp_port": virtual.bot_port},
        "reply": {"spacing_s": 0.05},
        "limits": {"per_node_per_hour": 1000, "per_hour": 10000},
        "airtime": {"budget_percent": 100, "slow_at_percent": 100, "hold_at_percent": 100},
        "llm": {"endpoints": [endpoint]},
        "memory": {"token_counter": "estimate"},
    }


def _populate(virtual: DefaultMesh) -> None:
    for number in range(NODES - len(virtual.mesh.nodes)):
        virtual.bot.meet(virtual.mesh.add(NodeSettings(long_name=f"Node {number}", short_name=f"{number:04}")))


async def _until_linked(bot: Bot) -> None:
    """The control socket says when."""
    async with asyncio.timeout(60):
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "meshai", "status", "-c", str(bot.config), "--json",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            output, _ = await process.communicate()
            if process.returncode == 0 and json.loads(output)["link"]["state"] == "up":
                return


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
