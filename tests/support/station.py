"""The daemon on a real database with a radio that is only a value: for tests of the conversation, not of the air."""

import asyncio
import itertools
from types import SimpleNamespace

from support.inbox_world import BOT, ZOE, dm

from meshai.config.model import Settings
from meshai.daemon import Daemon
from meshai.llm.base import Delta, Finish, Usage
from meshai.radio.link import LinkChange, LinkState, Receipt, Telemetry, node_id
from meshai.storage.database import Database


class FakeLink:
    """A RadioLink that is up, keeps what it sends, and acknowledges it as the addressee unless told not to."""

    def __init__(self):
        self.sent, self.acks, self.node, self.state = [], True, BOT, LinkState.UP
        self._ids = itertools.count(1000)
        self._sink = None
        self.favourites, self.removed = [], []

    async def start(self, sink):
        self._sink = sink
        sink(LinkChange(LinkState.UP, "test"))

    async def stop(self):
        self.state = LinkState.STOPPED

    def new_packet_id(self):
        return next(self._ids)

    async def send(self, request):
        self.sent.append(request)
        if self.acks:
            self._sink(Receipt(request.packet_id, request.to_num, "NONE", implicit=False))

    async def set_favourite(self, num):
        self.favourites.append(num)

    async def remove_node(self, num):
        self.removed.append(num)

    def peer(self, num):
        return None

    def telemetry(self):
        return Telemetry()

    def must_restart(self):
        return ""

    def status(self):
        return {"state": str(self.state)}


class FakeModel:
    """A ChatModel that says what it is told to; ``gate`` holds it back, ``error`` makes it fail."""

    label, is_offline, leaves_house = "fake", False, False

    def __init__(self):
        self.requests, self.replies, self.error = [], [], None
        self.truncated = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.pieces_gate = None

    async def stream(self, request):
        self.requests.append(request)
        await self.gate.wait()
        text = self.replies.pop(0) if self.replies else f"Answer {len(self.requests)}."
        if self.error is not None and self.error[0] == 0:
            raise self.error[1]
        for index, piece in enumerate(text.split("|")):
            if self.pieces_gate is not None:
                await self.pieces_gate.acquire()
            if self.error is not None and self.error[0] == index:
                raise self.error[1]
            yield Delta(piece)
        yield Delta("", Finish(self.truncated, Usage(), "fake", "fake"))

    async def complete(self, request):
        raise AssertionError("nobody completes in these tests")

    async def context_tokens(self):
        return 4096

    def status(self):
        return {}

    async def aclose(self):
        pass


class Station:
    """``await station.dm("hello")``; ``station.texts()`` is what went on the air."""

    def __init__(self, path, **sections):
        self.path, self.link, self.model, self.daemon = path, FakeLink(), FakeModel(), None
        reply = {"spacing_s": 0.0, "thinking_after_s": 0.0} | sections.pop("reply", {})
        memory = {"idle_s": 3600.0} | sections.pop("memory", {})
        self.settings = Settings.model_validate({"reply": reply, "memory": memory} | sections)
        self._ids = itertools.count(1)

    async def start(self):
        self.db = await Database.open(self.path)
        self.daemon = Daemon(self.settings, self.db, self.link, self.model)
        await self.daemon.start()

    async def stop(self):
        await self.daemon.stop()
        await self.db.close()

    async def restart(self):
        await self.stop()
        self.link.state = LinkState.UP
        await self.start()

    async def dm(self, text, *, node=ZOE, **more):
        """Hand in a DM and wait until everything is quiet again."""
        packet = dm(text, node=node, packet_id=next(self._ids), **more)
        await self.daemon.reception.handle(packet)
        await self.quiet()
        return packet

    async def quiet(self):
        """Wait until nothing is being answered or sent (bounded by the test's own timeout)."""
        still = 0
        while still < 3:
            await asyncio.sleep(0.01)
            busy = await self.db.fetch_value(
                "SELECT (SELECT count(*) FROM outbound WHERE state = 'queued')"
                " + (SELECT count(*) FROM inbound WHERE state IN ('received', 'answering'))"
            )
            waits_for_model = not self.model.gate.is_set() or self.model.pieces_gate is not None
            still = still + 1 if not busy or waits_for_model else 0

    def texts(self, node=None):
        return [r.text for r in self.link.sent if node in (None, node_id(r.to_num))]

    async def states(self):
        return [row[0] for row in await self.db.fetch_all("SELECT state FROM inbound ORDER BY id")]

    def prompt(self, index=-1):
        """A request's prompt as (system, [(role, content)...])."""
        messages = self.model.requests[index].messages
        return SimpleNamespace(system=messages[0].content, last=messages[-1].content, all=messages)
