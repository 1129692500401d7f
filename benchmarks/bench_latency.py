"""How long the program itself takes: packet in to request out, and last word to first packet.

    python -m benchmarks.bench_latency [--messages 1000000] [--nodes 10000] [--questions 1000] [--quick]

The daemon's own parts on a real database file with a million archived messages: an ``Inbound`` goes into
``Reception.sink``; the model, an object in this process, notes when it is asked and when it has said its last word;
the radio, a value too, notes when it is handed the answer. Between them lie the commit of the question with
``synchronous=FULL``, the identity, the rates, the window, the summaries, recall over the archive, and the commits of
answer and parts. Half of the questions ask for something earlier, so that recall searches;
their words are drawn as those of the archive are. One question at a time.

For reference the same way over real TCP and HTTP: ``meshai run`` as a process, from the moment the virtual node queues
the text for its client until the scripted server has the request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import archive
from benchmarks.report import result, row, spread
from benchmarks.rig import Bot, PlainModel, Station
from meshai.llm.scripted import Reply, ScriptedServer, Seen
from meshai.radio.virtual import default_mesh

ANSWER = "Yes: the relay on the hill hears you, and the battery will last until the morning if the sun comes out."
FORMS = (
    "when did I go to the {} and the {}?",
    "what did you say about the {}?",
    "How far does the signal reach with a {}, roughly?",
    "Good morning! I am at the {} now",
)


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run, and return rows and numbers."""
    parser = argparse.ArgumentParser(prog="bench_latency")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="5 000 messages, 20 questions")
    options, _ = parser.parse_known_args(list(argv))
    if options.quick:
        options.messages, options.nodes, options.questions = 5000, 50, 20
    with tempfile.TemporaryDirectory(prefix="meshai-latency-") as folder:
        path = Path(folder) / "meshai.db"
        started = time.perf_counter()
        archive.build(path, messages=options.messages, nodes=options.nodes)
        built_s = round(time.perf_counter() - started, 1)
        taken = asyncio.run(measure(path, nodes=options.nodes, questions=options.questions))
        network = asyncio.run(over_tcp(Path(folder), questions=max(10, options.questions // 10)))
        fsync = _fsync_ms(Path(folder))
    inbound, outbound, used = taken
    size = f"{options.messages:,} messages, {options.nodes:,} nodes"
    rows = [
        row(f"packet in -> request out, p50 ({size})", "<= 5 ms", f"{inbound['p50']} ms", inbound["p50"] <= 5),
        row("packet in -> request out, p99", "<= 20 ms", f"{inbound['p99']} ms", inbound["p99"] <= 20),
        row("processor time of that, all threads", "", f"p50 {used['p50']}, p99 {used['p99']} ms"),
        row("last token -> first packet to the radio, p99", "<= 10 ms", f"{outbound['p99']} ms", outbound["p99"] <= 10),
        row("the same over TCP and HTTP: node -> model server", "", f"p50 {network['p50']}, p99 {network['p99']} ms"),
    ]
    return result(
        rows,
        request_ms=inbound,
        request_cpu_ms=used,
        packet_ms=outbound,
        tcp_ms=network,
        built_s=built_s,
        fsync_ms=fsync,
    )


async def measure(path: Path, *, nodes: int, questions: int) -> tuple[dict[str, float], ...]:
    """Spread of request-out and of first-packet times, and of processor time until the request, in ms."""
    asked_at = spoken_at = handed_at = asked_cpu = 0.0

    def on_request(_: object) -> None:
        nonlocal asked_at, asked_cpu
        asked_at, asked_cpu = time.perf_counter(), time.process_time()

    def on_last() -> None:
        nonlocal spoken_at
        spoken_at = time.perf_counter()

    def on_send(_: object) -> None:
        nonlocal handed_at
        handed_at = time.perf_counter()
        handed.set()

    handed = asyncio.Event()
    model = PlainModel(lambda _: ANSWER)
    model.on_request, model.on_last = on_request, on_last
    rng = random.Random(5)
    words = archive.vocabulary()
    weights = archive.weights(len(words))
    requests, packets, used = [], [], []
    async with Station(path, model, memory={"idle_s": 3600.0}) as station:
        station.link.on_send = on_send
        await station.quiet()
        warm_up = min(20, questions // 4)
        for number in range(questions + warm_up):
            form = FORMS[number % len(FORMS)]
            packet = station.dm(form.format(*rng.choices(words, weights, k=2)), rng.randrange(nodes))
            handed.clear()
            begun, begun_cpu = time.perf_counter(), time.process_time()
            station.hear(packet)
            await handed.wait()
            await station.quiet()
            if number >= warm_up:
                requests.append(1000 * (asked_at - begun))
                packets.append(1000 * (handed_at - spoken_at))
                used.append(1000 * (asked_cpu - begun_cpu))
    return spread(requests), spread(packets), spread(used)


async def over_tcp(directory: Path, *, questions: int) -> dict[str, float]:
    """The same with everything real but the air: spread of node-to-model-server times, in ms."""
    begun = asked = 0.0
    taken: list[float] = []
    heard = asyncio.Event()

    def rule(_: Seen) -> Reply:
        nonlocal asked
        asked = time.perf_counter()
        heard.set()
        return Reply(ANSWER)

    virtual = default_mesh(speed=200.0, loss=0.0, preset="SHORT_TURBO", direct=True)
    async with ScriptedServer() as server:
        server.rule = rule
        await virtual.start()
        put = virtual.bot.to_phone.put

        def noted(packet: Any) -> None:
            nonlocal begun
            if packet.decoded.portnum == 1:
                begun = time.perf_counter()
            put(packet)

        virtual.bot.to_phone.put = noted  # type: ignore[method-assign]
        endpoint = {"name": "scripted", "base_url": server.base_url, "model": "scripted", "context_tokens": 4096}
        (directory / "tcp").mkdir()
        bot = Bot(
            directory / "tcp",
            connection={"type": "tcp", "tcp_host": virtual.bot_host, "tcp_port": virtual.bot_port},
            reply={"spacing_s": 0.02},
            limits={"per_node_per_hour": 1000, "per_hour": 10000},
            airtime={"budget_percent": 100, "slow_at_percent": 100, "hold_at_percent": 100},
            llm={"endpoints": [endpoint]},
        )
        try:
            await bot.start_until_ready(dict(os.environ))
            phone = virtual.phones[0]
            for number in range(questions + 5):
                heard.clear()
                have = len(phone.received)
                await phone.send_dm(virtual.bot, f"How far does the signal reach from place {number}?")
                async with asyncio.timeout(20):
                    await heard.wait()
                    while len(phone.received) == have:  # noqa: ASYNC110 - the phone's own wait looks from the start
                        await asyncio.sleep(0.005)
                await asyncio.sleep(0.02)
                if number >= 5:
                    taken.append(1000 * (asked - begun))
            await bot.end()
        finally:
            await bot.kill()
            await virtual.stop()
    return spread(taken)


def _fsync_ms(directory: Path) -> dict[str, float]:
    """What the disk costs: one commit is about one of these."""
    taken = []
    with (directory / "fsync").open("wb") as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(1000 * (time.perf_counter() - begun))
    return spread(taken)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
