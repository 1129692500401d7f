"""What the parts drive the program with: a radio that is only a value, a model that answers at once, a fast clock, and
``meshai run`` as a process."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Self

from meshai.clock import Clock, SystemClock
from meshai.config.model import Settings
from meshai.daemon import Daemon
from meshai.llm.base import ChatRequest, Completion, Delta, Finish
from meshai.radio.link import (
    Channel,
    Decoding,
    EventSink,
    Inbound,
    LinkChange,
    LinkState,
    NodeInfo,
    Peer,
    Receipt,
    SendRequest,
    Telemetry,
)
from meshai.storage.database import Database

BOT = NodeInfo(
    num=0x0B07A1A1,
    long_name="MeshAI",
    public_key=bytes(range(32)),
    region="US",
    preset="SHORT_TURBO",
    bandwidth_khz=500.0,
    spreading_factor=7,
    channels=(Channel(0, "ShortTurbo", is_primary=True, has_default_key=True),),
)
FIRST_NODE = 0x10000000


class FastClock:
    """``speed`` seconds pass in one, for everything alike."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._wall, self._mono = time.time(), time.monotonic()

    def now(self) -> float:
        return self._wall + (time.monotonic() - self._mono) * self._speed

    def monotonic(self) -> float:
        return self._mono + (time.monotonic() - self._mono) * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


class PlainLink:
    """A RadioLink that is up, notes when it is handed what, and acknowledges it as the addressee."""

    def __init__(self) -> None:
        self.node: NodeInfo | None = BOT
        self.state = LinkState.UP
        self.on_send: Callable[[SendRequest], None] = lambda _: None
        self.sent = 0
        self._ids = itertools.count(1000)
        self._sink: EventSink = lambda _: None

    async def start(self, sink: EventSink) -> None:
        self._sink = sink
        sink(LinkChange(LinkState.UP, "benchmark"))

    async def stop(self) -> None:
        self.state = LinkState.STOPPED

    def new_packet_id(self) -> int:
        return next(self._ids)

    async def send(self, request: SendRequest) -> None:
        self.sent += 1
        self.on_send(request)
        self._sink(Receipt(request.packet_id, request.to_num, "NONE", implicit=False))

    async def set_favourite(self, num: int) -> None:
        """Nothing to keep."""

    async def remove_node(self, num: int) -> None:
        """Nothing to forget."""

    def peer(self, num: int) -> Peer | None:
        return Peer(num, long_name=f"Node {num & 0xFFFF}")

    def telemetry(self) -> Telemetry:
        return Telemetry()

    def must_restart(self) -> str:
        return ""

    def status(self) -> dict[str, object]:
        return {"state": str(self.state)}


class PlainModel:
    """A ChatModel in this process; ``on_request`` is called when it is asked, ``on_last`` after its last word."""

    label, is_offline, leaves_house = "plain", False, False

    def __init__(self, answer: Callable[[ChatRequest], str], summary: str = "They talked.") -> None:
        self.on_request: Callable[[ChatRequest], None] = lambda _: None
        self.on_last: Callable[[], None] = lambda: None
        self.completed = 0
        self._answer, self._summary = answer, summary

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        self.on_request(request)
        text = self._answer(request)
        for word in re.findall(r"\S+\s*", text):
            yield Delta(word)
        self.on_last()
        yield Delta("", Finish(endpoint="plain", model="plain"))

    async def complete(self, request: ChatRequest) -> Completion:  # noqa: ARG002 - the protocol's name
        self.completed += 1
        return Completion(self._summary, Finish(endpoint="plain", model="plain"))

    async def context_tokens(self) -> int:
        return 4096

    def status(self) -> dict[str, object]:
        return {}

    async def aclose(self) -> None:
        """Nothing is open."""


class Station:
    """The daemon's parts on a real database, with the radio and perhaps the model as values."""

    def __init__(self, path: Path, model: Any, *, clock: Clock | None = None, **sections: Mapping[str, Any]) -> None:
        self.link, self.model, self.clock = PlainLink(), model, clock or SystemClock()
        defaults: dict[str, dict[str, Any]] = {
            "reply": {"spacing_s": 0.0, "thinking_after_s": 0.0},
            "limits": {"per_node_per_hour": 1000, "per_hour": 10000, "queue": 1000},
            "airtime": {"budget_percent": 100, "slow_at_percent": 100, "hold_at_percent": 100},
        }
        for name, values in sections.items():
            defaults[name] = {**defaults.get(name, {}), **values}
        self.settings = Settings.model_validate(defaults)
        self._path = path
        self._ids = itertools.count(1)
        self.db: Database
        self.daemon: Daemon

    async def __aenter__(self) -> Self:
        self.db = await Database.open(self._path)
        self.daemon = Daemon(self.settings, self.db, self.link, self.model, clock=self.clock)
        await self.daemon.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.daemon.stop()
        await self.db.close()

    def dm(self, text: str, node: int) -> Inbound:
        """A direct message of node number ``node``, with its own key."""
        return Inbound(
            from_num=FIRST_NODE + node, to_num=BOT.num, packet_id=next(self._ids), decoding=Decoding.TEXT, text=text,
            pki_encrypted=True, public_key=key_of(node), hop_start=3, hop_limit=2, rx_time=int(self.clock.now()),
            received_at=self.clock.now(),
        )  # fmt: skip

    def hear(self, packet: Inbound) -> None:
        """Hand a packet to the daemon as the link does."""
        self.daemon.reception.sink(packet)

    async def quiet(self, timeout_s: float = 60.0) -> None:
        """Wait until every packet that was heard is answered and every part has its receipt."""
        async with asyncio.timeout(timeout_s):
            while await self._busy():  # noqa: ASYNC110 - nothing tells when everything is settled
                await asyncio.sleep(0.002)

    async def _busy(self) -> bool:
        daemon = self.daemon
        if daemon.reception.stalled_s() or daemon.responder.in_progress or daemon.responder.waiting:
            return True
        return bool(
            await self.db.fetch_value(
                "SELECT EXISTS (SELECT 1 FROM inbound WHERE state IN ('received', 'answering'))"
                " OR EXISTS (SELECT 1 FROM outbound WHERE settled_at IS NULL)"
            )
        )


def key_of(node: int) -> bytes:
    """The public key of a node of ``Station.dm``."""
    return node.to_bytes(4, "big") * 8


# --- a process ------------------------------------------------------------------------------------------------------


class Bot:
    """``meshai run`` as a process of its own, with its files in ``directory``."""

    def __init__(self, directory: Path, **sections: Mapping[str, Any]) -> None:
        self.database = directory / "meshai.db"
        self.config = directory / "config.yaml"
        self.log = directory / "meshai.log"
        self.ready_after_s = 0.0
        self._process: asyncio.subprocess.Process | None = None
        settings = {**sections, "storage": {"database": str(self.database)}}
        self.config.write_text(json.dumps(settings))  # JSON is YAML
        self.config.chmod(0o600)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, env: Mapping[str, str] | None = None) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "meshai", "run", "-c", str(self.config), stdout=log, stderr=log,
                stdin=asyncio.subprocess.DEVNULL, env=env,
            )  # fmt: skip

    async def start_until_ready(self, env: Mapping[str, str], timeout_s: float = 60.0) -> float:
        """Start as systemd does; seconds from the start of the process until READY=1."""
        address = self.config.with_name("notify")
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(str(address))
            channel.setblocking(False)
            started = time.perf_counter()
            await self.start({**env, "NOTIFY_SOCKET": str(address)})
            async with asyncio.timeout(timeout_s):
                while not (await loop.sock_recv(channel, 4096)).startswith(b"READY=1"):
                    pass
            took = time.perf_counter() - started
        address.unlink()
        return took

    async def kill(self) -> None:
        """``kill -9``; harmless when it does not run."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def end(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._process.wait(), 30)

    async def verify(self) -> str:
        """``meshai memory verify`` on what is left."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "meshai", "memory", "verify", "-c", str(self.config),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        return "hold" if process.returncode == 0 else output.decode(errors="replace")[-400:]

    def errors(self) -> list[str]:
        """Distinct errors and tracebacks of the log, numbers replaced."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        found = (line for line in lines if " ERROR " in line or line.startswith(("Traceback", "<3>", "<2>")))
        return sorted({re.sub(r"\d+", "N", line) for line in found})
