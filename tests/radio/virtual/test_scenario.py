"""The ready-made mesh of the demo, the chat and the simulator."""

import pytest

from meshai.radio.virtual import Fate, default_mesh


@pytest.fixture
async def virtual():
    mesh = default_mesh(speed=500, seed=3)
    await mesh.start()
    yield mesh
    await mesh.stop()


async def test_bot_relay_and_two_people_are_acquainted(virtual):
    assert virtual.bot_port > 0
    assert [phone.node.settings.long_name for phone in virtual.phones] == ["Alice", "Bob"]
    for node in virtual.mesh.nodes.values():
        assert len(node.database) == 3


async def test_person_out_of_reach_is_served_by_the_relay(virtual):
    alice, bob = virtual.phones
    sent = await alice.send_dm(bob.node, "over the hill")
    assert (await alice.settled(sent)).fate is Fate.ACKED
    assert (await bob.wait_for(lambda m: m.text == "over the hill")).hops == 1


async def test_channel_starts_quiet(virtual):
    """Nodes that were just introduced would fill the first minute with NodeInfo."""
    alice = virtual.phones[0]
    sent = await alice.send_dm(virtual.bot, "hello")
    await alice.settled(sent)
    assert virtual.bot.radio.log.channel_utilization() < 10


async def test_phone_put_away_leaves_mail_in_its_node(virtual):
    alice, bob = virtual.phones
    bob.close()
    sent = await alice.send_dm(bob.node, "later")
    await alice.settled(sent)
    assert not bob.received
    bob.open()
    assert (await bob.wait_for(lambda m: m.text == "later")).is_dm
