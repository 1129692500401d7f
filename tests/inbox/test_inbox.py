"""What the inbox stores and what it drops in silence (DESIGN §3 item 2)."""

import pytest
from support.inbox_world import BOT, KEY, ZOE, dm

from meshai.conversation.router import RouteKind
from meshai.radio.link import Decoding, LinkState


async def states(db):
    return [tuple(row) for row in await db.fetch_all("SELECT content, kind, state, reason FROM inbound ORDER BY id")]


async def test_question_is_stored_before_anything_else(world):
    question = await world.inbox().accept(dm("What is a node?"))
    assert (question.route.kind, question.hops) == (RouteKind.CHAT, 2)
    assert await states(world.db) == [("What is a node?", "chat", "received", "")]
    row = await world.db.fetch_one("SELECT role, content, sender, packet_id FROM messages")
    assert tuple(row) == ("user", "What is a node?", ZOE, 1)


async def test_same_packet_twice_is_one_question(world):  # M10, A13
    inbox = world.inbox()
    assert await inbox.accept(dm(packet_id=7)) is not None
    assert await inbox.accept(dm(packet_id=7)) is None
    assert await world.inbox().accept(dm(packet_id=7)) is None  # also after a restart
    assert len(await states(world.db)) == 1


async def test_packet_id_may_recur_after_an_hour(world):
    inbox = world.inbox()
    await inbox.accept(dm(packet_id=7))
    world.clock.advance(3700)
    assert await inbox.accept(dm(packet_id=7)) is not None


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (dm(node=BOT.id), "own packet"),
        (dm(node="!00000000"), "own packet"),
        (dm(via_mqtt=True), "via MQTT"),
        (dm(decoding=Decoding.BAD_UTF8, text=""), "not UTF-8"),
        (dm("   "), "not for us"),
        (dm(""), "not for us"),
        (dm(is_dm=False, to_num=0xFFFFFFFF), "broadcast"),
        (dm(is_dm=False, to_num=0xFFFFFFFF, decoding=Decoding.ENCRYPTED), "undecodable broadcast"),
        (dm(key=None), "no PKI"),
        (dm(key=None, pki_encrypted=True), "no PKI"),  # protocol.md §9.6
        (dm(decoding=Decoding.ENCRYPTED, text=""), "undecodable"),
    ],
)
async def test_not_for_us_is_dropped_in_silence(world, packet, why):
    inbox = world.inbox()
    assert await inbox.accept(packet) is None
    assert inbox.counters.dropped == {why: 1}
    assert await world.db.fetch_value("SELECT count(*) FROM messages") == 0


async def test_blocked_and_unlisted_nodes_get_silence(world):
    assert await world.inbox(access={"block": [ZOE]}).accept(dm()) is None
    assert await world.inbox(access={"allow": ["!00000009"]}).accept(dm()) is None
    assert await world.inbox(access={"allow": [ZOE]}).accept(dm()) is not None


async def test_dms_without_pki_are_counted_for_their_node(world):
    inbox = world.inbox()
    for packet_id in (1, 2):
        await inbox.accept(dm(key=None, packet_id=packet_id))
    assert await world.db.fetch_value("SELECT ignored_no_pki FROM nodes WHERE node_id = ?", (ZOE,)) == 2


async def test_undecodable_dm_from_a_pinned_node_raises_the_key_alarm(world, caplog):  # protocol.md §9.5
    inbox = world.inbox()
    await inbox.accept(dm())
    await inbox.accept(dm(packet_id=2, decoding=Decoding.ENCRYPTED, text="", key=None, pki_encrypted=True))
    assert await world.db.fetch_value("SELECT key_alarm_at FROM nodes WHERE node_id = ?", (ZOE,)) is not None
    assert f"meshai identity accept '{ZOE}'" in caplog.text


async def test_undecodable_dm_from_anybody_else_is_silence(world, caplog):
    await world.inbox().accept(dm(decoding=Decoding.ENCRYPTED, text="", key=None))
    assert caplog.text == ""


async def test_opted_in_channel_needs_a_mention(world):
    inbox = world.inbox(channels=[{"name": "bot"}])
    heard = {"is_dm": False, "to_num": 0xFFFFFFFF, "channel_name": "bot", "channel_index": 1, "key": None}
    assert await inbox.accept(dm("hello all", packet_id=1, **heard)) is None
    question = await inbox.accept(dm("@ai hello", packet_id=2, **heard))
    assert (question.route.text, question.channel.name) == ("hello", "bot")
    assert await world.db.fetch_value("SELECT key FROM conversations") == "ch:bot"


async def test_default_channel_is_refused_unless_said_twice(world):
    heard = {"is_dm": False, "to_num": 0xFFFFFFFF, "channel_name": "LongFast", "channel_index": 0, "key": None}
    public = {"name": "LongFast"}
    assert await world.inbox(channels=[public]).accept(dm("@ai hi", **heard)) is None
    inbox = world.inbox(channels=[public | {"i_know_this_is_public": True}])
    assert await inbox.accept(dm("@ai hi", packet_id=2, **heard)) is not None


async def test_backlog_older_than_ten_minutes_expires(world):
    inbox = world.inbox(away_s=7200.0)
    old = int(world.clock.wall) - 3600
    question = await inbox.accept(dm(rx_time=old, backlog=True))
    assert question.expired
    assert round(world.clock.wall - question.received_at) == 3600
    assert await states(world.db) == [("hello", "chat", "expired", "")]


async def test_backlog_of_a_short_absence_is_answered_whatever_the_node_clock_says(world):
    inbox = world.inbox()
    inbox.on_link(LinkState.UP)
    inbox.on_link(LinkState.DOWN)
    world.clock.advance(30)
    inbox.on_link(LinkState.UP)
    question = await inbox.accept(dm(rx_time=int(world.clock.wall) - 5000, backlog=True))
    assert not question.expired


async def test_node_without_clock_is_judged_by_our_absence(world):
    inbox = world.inbox(away_s=5000.0)
    assert (await inbox.accept(dm(backlog=True))).expired


async def test_live_packets_teach_the_skew_of_the_node_clock(world):
    inbox = world.inbox(away_s=100_000.0)
    behind = int(world.clock.wall) - 3600
    await inbox.accept(dm(rx_time=behind, packet_id=1))
    assert not (await inbox.accept(dm(rx_time=behind - 30, packet_id=2, backlog=True))).expired


@pytest.mark.parametrize(
    "text", ["<|endoftext|>", "%s{}", "'; DROP TABLE messages; --", "\x1b[31mred", "x" * 233, "a\x00b"]
)
async def test_hostile_texts_are_data(world, text):
    question = await world.inbox().accept(dm(text))
    assert await world.db.fetch_value("SELECT content FROM messages") == question.route.text == text


async def test_tapback_is_stored_but_is_no_message(world):  # M15
    question = await world.inbox().accept(dm("👍", is_tapback=True, reply_id=5))
    assert question.is_tapback
    assert await world.db.fetch_value("SELECT count(*) FROM messages") == 0


async def test_key_is_pinned_at_first_contact(world):
    await world.inbox().accept(dm())
    assert tuple(await world.db.fetch_one("SELECT node_id, public_key FROM identities")) == (ZOE, KEY)
