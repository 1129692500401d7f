"""An inbox on a real database, with a node that is only a value."""

from types import SimpleNamespace

import pytest

from meshai.config.model import Settings
from meshai.inbox import Inbox
from meshai.radio.link import Channel, Decoding, Inbound, NodeInfo, node_num
from meshai.storage.database import Database

KEY = bytes(range(32))
OTHER_KEY = bytes(range(32, 64))
ZOE = "!0000a001"
BOT = NodeInfo(
    num=0x0B07,
    channels=(Channel(0, "LongFast", is_primary=True, has_default_key=True), Channel(1, "bot")),
)


class FakeClock:
    """Wall and monotonic time that move by hand."""

    def __init__(self):
        self.wall, self.mono = 1_790_000_000.0, 100.0

    def now(self):
        return self.wall

    def monotonic(self):
        return self.mono

    async def sleep(self, seconds):
        self.advance(seconds)

    def advance(self, seconds):
        self.wall += seconds
        self.mono += seconds


def dm(text="hello", *, node=ZOE, packet_id=1, key=KEY, **more):
    """A direct message, PKI-authenticated unless ``key`` is None."""
    values = {
        "from_num": node_num(node), "to_num": BOT.num, "packet_id": packet_id, "decoding": Decoding.TEXT, "text": text,
        "pki_encrypted": key is not None, "public_key": key, "hop_start": 3, "hop_limit": 1,
    }  # fmt: skip
    return Inbound(**(values | more))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def db(tmp_path):
    database = await Database.open(tmp_path / "meshai.db")
    yield database
    await database.close()


@pytest.fixture
def world(db, clock):
    """``world.inbox(**sections)`` makes an inbox with these settings."""

    def inbox(*, away_s=None, **sections):
        settings = Settings.model_validate(sections)
        return Inbox(db, lambda: settings, clock, node=lambda: BOT, peer=lambda num: None, away_s=away_s)

    return SimpleNamespace(db=db, clock=clock, inbox=inbox, dm=dm)
