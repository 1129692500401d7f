"""Channels: opted in by name, spoken to by name, one part, by DM to people whose key is known (field.md E.2 1)."""

import pytest
from support.proof_world import words

from meshai.radio.virtual import ChannelSettings

ON_AIR = [ChannelSettings(), ChannelSettings("bot", b"\x02" * 16)]
LONG = words("chan", 60)


@pytest.fixture
async def world(build):
    world = await build(people=2, radio={"channels": ON_AIR}, channels=[{"name": "bot"}])
    world.server.rule = lambda prompt: LONG if "long" in prompt.last else f"Answer {len(world.server.requests)}."
    return world


def on_channel(world, phone):
    return [m.text for m in phone.received if m.from_num == world.bot.num and not m.is_dm]


async def ask(world, text, *, channel=1):
    sent = await world.zoe.send_channel(text, channel=channel)
    await world.until(lambda: world.rows("SELECT 1 FROM inbound WHERE packet_id = ?", sent.packet_id))
    await world.quiet()


async def test_mention_of_somebody_unknown_is_answered_on_the_channel_in_one_part(world):
    await ask(world, "@ai something long, please")
    for phone in world.phones:
        assert len(on_channel(world, phone)) == 1
        assert len(on_channel(world, phone)[0].encode()) <= 200
    assert world.texts() == []


async def test_mention_of_somebody_with_a_known_key_is_answered_by_dm(world):
    """E.2 1: answer by DM where possible."""
    await world.answer("Hello, it is me.")
    await ask(world, "@ai what is up?")
    assert on_channel(world, world.zoe) == []
    assert len(world.texts()) == 2
    assert world.texts(world.phones[1]) == []


async def test_channel_and_dm_are_separate_conversations(world):
    await world.answer("My secret is the ridge.")
    await ask(world, "@ai what is my secret?")
    assert "ridge" not in world.server.requests[-1].prompt
    assert {row[0] for row in world.rows("SELECT key FROM conversations")} == {"ch:bot", f"dm:{world.zoe.node.id}"}


async def test_talk_without_mention_and_the_public_channel_get_silence(world):
    """S1-31, MeshMonitor #294: a bot must shut up in channels."""
    await world.zoe.send_channel("what is up, everybody?", channel=1)
    await world.zoe.send_channel("@ai are you there?", channel=0)
    await world.zoe.send_channel("!help", channel=0)
    await world.answer("!ping")
    assert world.server.requests == []
    assert [on_channel(world, phone) for phone in world.phones] == [[], []]
    assert world.value("SELECT count(*) FROM messages WHERE sender = ? AND NOT is_command", world.zoe.node.id) == 0
