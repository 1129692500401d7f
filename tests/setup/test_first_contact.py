"""The first DM and the code, over a link of our own and beside a running daemon, on the virtual mesh."""

import asyncio
import base64

import pytest
from support.e2e_world import World

from meshai.clock import SystemClock
from meshai.errors import LinkDownError
from meshai.setup import first_contact
from meshai.setup.code import OneTimeCode, Verdict
from meshai.setup.node import connection_for

CLOCK = SystemClock()


class Waiting:
    """``first_contact.wait`` in the background and what it showed."""

    def __init__(self, source, *, until_code=True):
        self.code = OneTimeCode(CLOCK)
        self.shown = []
        waiting = first_contact.wait(source, self.code, self._show, until_code=until_code)
        self.task = asyncio.create_task(waiting)

    def _show(self, arrived, verdict):
        self.shown.append((arrived.node_id, arrived.text, verdict))

    async def saw(self, count):
        async with asyncio.timeout(10):
            while len(self.shown) < count and not self.task.done():
                await asyncio.sleep(0.02)


def over_link(mesh):
    return first_contact.over_link(connection_for(tcp=(mesh.bot_host, mesh.bot_port)), CLOCK)


async def test_code_in_a_dm_names_the_node_and_its_key(mesh):
    alice = mesh.phones[0]
    async with over_link(mesh) as source:
        waiting = Waiting(source)
        await alice.send_dm(mesh.bot, "hello")
        await waiting.saw(1)
        await alice.send_dm(mesh.bot, waiting.code.digits)
        found = await asyncio.wait_for(waiting.task, 10)
    assert found.node_id == alice.node.id
    assert found.name == "Alice"
    assert base64.b64decode(found.base64_key) == alice.node.public_key
    assert [verdict for _, _, verdict in waiting.shown] == [Verdict.NO_CODE, Verdict.RIGHT]


async def test_code_on_a_channel_is_not_seen(mesh):
    async with over_link(mesh) as source:
        waiting = Waiting(source)
        await mesh.phones[0].send_channel(waiting.code.digits)
        await mesh.phones[1].send_dm(mesh.bot, "hi")
        await waiting.saw(1)
        waiting.task.cancel()
    assert [text for _, text, _ in waiting.shown] == ["hi"]


async def test_five_wrong_tries_end_it(mesh):
    async with over_link(mesh) as source:
        waiting = Waiting(source)
        for number in range(5):
            await mesh.phones[0].send_dm(mesh.bot, f"{(int(waiting.code.digits) + 1 + number) % 1000000:06d}")
            await waiting.saw(number + 1)
        assert await asyncio.wait_for(waiting.task, 10) is None
    assert [verdict for _, _, verdict in waiting.shown] == [Verdict.WRONG] * 5


async def test_ham_mode_ends_with_the_first_message_and_makes_nobody_admin(mesh):
    for node in (mesh.bot, mesh.relay, *(phone.node for phone in mesh.phones)):
        node.settings.licensed = True
    async with over_link(mesh) as source:
        waiting = Waiting(source, until_code=False)
        await mesh.phones[0].send_dm(mesh.bot, waiting.code.digits)
        assert await asyncio.wait_for(waiting.task, 10) is None
    assert [verdict for _, _, verdict in waiting.shown] == [Verdict.UNPROVEN]


async def test_node_that_goes_away_ends_the_wait(mesh):
    async with over_link(mesh) as source:
        waiting = Waiting(source)
        await asyncio.sleep(0.1)
        mesh.port.drop()
        with pytest.raises(LinkDownError):
            await asyncio.wait_for(waiting.task, 10)


async def test_running_daemon_shows_dms_and_keeps_the_code_from_the_model(tmp_path):
    async with World(tmp_path, access={"allow": []}) as world:
        world.server.rule = lambda prompt: "Hello!"
        waiting = Waiting(first_contact.over_daemon(tmp_path / "control.sock"))
        while not world.daemon.contact._until > 0:
            await asyncio.sleep(0.02)
        assert "Hello" in await world.ask(world.alice, "hi")
        await world.send(world.alice, waiting.code.digits)
        found = await asyncio.wait_for(waiting.task, 10)
        assert found.node_id == world.alice.node.id
        assert base64.b64decode(found.base64_key) == world.alice.node.public_key
        assert [text for _, text, _ in waiting.shown] == ["hi", waiting.code.digits]
        assert all(waiting.code.digits not in seen.prompt for seen in world.server.requests)
        assert world.value("SELECT count(*) FROM messages WHERE content = ?", waiting.code.digits) == 0


async def test_six_digits_are_a_question_when_nobody_listens(tmp_path):
    async with World(tmp_path) as world:
        world.server.rule = lambda prompt: f"You said {prompt.last}"
        assert "123456" in await world.ask(world.alice, "123456")
