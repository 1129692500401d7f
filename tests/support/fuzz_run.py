"""Frames from ``fuzz_frames`` through everything that receives: library, decoder, reception, inbox, database."""

import gc
import threading

from meshtastic import publishingThread
from meshtastic.protobuf import mesh_pb2
from support.fuzz_frames import Mutator
from support.recordings import A
from support.wire_node import FAST

from meshai.clock import SystemClock
from meshai.config.model import Settings
from meshai.radio.interfaces import MAX_NODES, TcpNode
from meshai.radio.library import keep_quiet
from meshai.radio.link import Alert, Channel, Heard, Inbound, NodeInfo, Receipt
from meshai.radio.session import Session, subscribe

NODE = NodeInfo(
    num=A, region="US", public_key=bytes(range(32)), firmware="2.7.26.54e0d8d",
    channels=(Channel(0, "LongFast", is_primary=True, has_default_key=True), Channel(1, "bot"), Channel(2, "x")),
)  # fmt: skip
BATCH = 100


class Fuzz:
    """Feeds a running station. ``errors``: what a stock listener would have swallowed."""

    def __init__(self, station, seed):
        subscribe()
        keep_quiet()
        self.station, self.frames = station, Mutator(seed)
        self.errors, self.heard, self.parsed, self.values = [], [], 0, 0
        self.session = Session(None, SystemClock(), FAST, lambda _session, value: self.heard.append(value))
        self.session.iface = TcpNode("127.0.0.1", 1, self, FAST)
        self.session.node = NODE
        self._fresh_interface()

    def __getattr__(self, name):
        """As the interface's listener: the session's own ``on_*``, their exceptions kept."""
        if not name.startswith("on_"):
            raise AttributeError(name)

        def guarded(*args):
            try:
                getattr(self.session, name)(*args)
            except Exception as error:  # noqa: BLE001 - the finding itself
                self.errors.append(error)

        return guarded

    def _fresh_interface(self):
        iface = self.session.iface
        iface.nodes, iface.nodesByNum, iface._localChannels = {}, {}, []
        iface.myInfo = mesh_pb2.MyNodeInfo(my_node_num=A)

    async def run(self, count):
        """So many frames more."""
        self.parsed = self.values = 0
        for _ in range(0, count, BATCH):
            for _ in range(BATCH):
                self._feed(self.frames.next())
            published = threading.Event()
            publishingThread.queueWork(published.set)
            assert published.wait(30)
            self.session.node = NODE  # a forged my_info does not end the run
            heard, self.heard = self.heard, []
            for value in heard:
                if isinstance(value, Inbound | Receipt | Heard | Alert):
                    self.values += 1
                    await self._handle(value)
        self.station.model.requests.clear()
        await self.station.quiet()

    def _feed(self, data):
        try:
            mesh_pb2.FromRadio.FromString(data)
            self.parsed += 1
        except Exception:  # noqa: BLE001 - whatever protobuf says to damaged bytes
            pass
        self.session.iface._handleFromRadio(data)

    async def _handle(self, value):
        try:
            await self.station.daemon.reception.handle(value)
        except Exception as error:  # noqa: BLE001 - the finding itself
            self.errors.append(error)

    def weight(self):
        """Objects alive."""
        self.station.link.sent.clear()
        gc.collect()
        return len(gc.get_objects())

    def check_growth(self, before):
        """What is kept per sender is bounded; an hour's rates and what the library knows of nodes is all there is."""
        iface, after = self.session.iface, self.weight()
        assert len(iface.nodesByNum) <= MAX_NODES + 1
        assert after - before < 60_000, f"{before} -> {after} objects"

    async def check_tables(self):
        """Nothing is stored more often than it came; answers stay within the hourly rates."""
        fetch = self.station.db.fetch_value
        limits = self.station.settings.limits
        stored = await fetch("SELECT count(*) FROM inbound")
        assert await fetch("SELECT count(*) FROM (SELECT DISTINCT node_id, packet_id FROM inbound)") == stored
        assert await fetch("SELECT count(*) FROM inbound WHERE state IN ('received', 'answering')") == 0
        assert await fetch("SELECT count(*) FROM messages WHERE role = 'user'") <= stored
        nodes = await fetch("SELECT count(*) FROM nodes")
        assert await fetch("SELECT count(*) FROM answers WHERE kind = 'answer'") <= limits.per_hour
        assert await fetch("SELECT count(*) FROM answers WHERE kind = 'command'") <= 2 * limits.per_hour
        assert await fetch("SELECT count(*) FROM answers WHERE kind = 'notice'") <= 6 * nodes
        assert await fetch("PRAGMA integrity_check") == "ok"

    async def still_answers(self):
        """A person unheard of gets an answer, once the hour's rates allow it."""
        station = self.station
        generous = station.settings.model_dump() | {"limits": {"per_node_per_hour": 1000, "per_hour": 10_000}}
        station.daemon.reload(Settings.model_validate(generous))
        station.model.replies.append("Still here.")
        await station.dm("Are you there?", node="!0000ffee")
        return any("Still here." in text for text in station.texts("!0000ffee"))
