"""A person whose node was reset, from the silence to the accepted key (docs/protocol.md §9.5, §9.6, §9.1)."""

import base64

import pytest
from support.proof_world import words

from meshai.errors import UsageError
from meshai.identity import fingerprint


def open_book(prompt):
    """A model that tells everything it is shown."""
    return "You told me: ridge." if "ridge" in prompt.prompt else "I know nothing of a camp."


@pytest.fixture
async def world(build):
    world = await build(people=2)
    world.server.rule = open_book
    return world


async def told(world):
    """Zoe told the bot where her camp is; her node is a favourite of the radio."""
    await world.answer("My camp is at the ridge.")
    await world.until(lambda: world.bot.database.get(world.zoe.num).favourite)


async def rekeyed(world):
    """Zoe's node is reset; it knows the bot again, the bot's node refuses its new key."""
    world.zoe.node.rekey()
    world.zoe.node.meet(world.bot)
    world.zoe.node.modules.send_nodeinfo(at_once=True)
    await world.pass_time(20)


async def accepted(world):
    """The operator saw the new key at the bot and accepts it: what ``meshai identity accept`` sends."""
    return await world.control("identity.accept", node=world.zoe.node.id)


async def forget_and_meet(world):
    """The radio forgets the old key; some minutes later the node introduces itself."""
    new = world.zoe.node.public_key
    old = world.value("SELECT public_key FROM identities ORDER BY rowid LIMIT 1")
    await world.until(lambda: world.bot.database.key_of(world.zoe.num) != old)
    await world.pass_time(30)
    while world.bot.database.key_of(world.zoe.num) != new:
        world.zoe.node.modules.send_nodeinfo(at_once=True)
        await world.pass_time(10)


async def test_undecodable_dm_raises_the_alarm_that_names_the_command(world, caplog):
    """§9.5, §9.6, D.2 10: today people only see that "the bot is dead"."""
    await told(world)
    await rekeyed(world)
    sent = await world.zoe.send_dm(world.bot, "Where is my camp?")
    await world.until(lambda: world.value("SELECT count(*) FROM nodes WHERE key_alarm_at IS NOT NULL"))
    await world.zoe.settled(sent)
    assert (str(sent.fate), sent.error) == ("failed", "NO_CHANNEL"), "as recorded: NO_CHANNEL until the node forgets it"
    assert f"meshai identity accept '{world.zoe.node.id}'" in caplog.text
    status = await world.control("status")
    assert status["nodes"][0]["key_alarm_at"]
    assert len(world.server.requests) == 1, "nobody is answered from an unopened packet"


async def test_nothing_is_accepted_by_itself(world):
    """§9.5: without a key shown to the bot there is nothing to accept, and nobody does it automatically."""
    await told(world)
    await rekeyed(world)
    await world.zoe.send_dm(world.bot, "Where is my camp?")
    await world.until(lambda: world.value("SELECT count(*) FROM nodes WHERE key_alarm_at IS NOT NULL"))
    assert len(world.rows("SELECT * FROM identities WHERE revoked_at IS NULL")) == 1


async def test_reset_node_is_joined_to_its_conversation_by_the_operator(world):
    """§9.5, §9.1: alarm, accept, the radio forgets the node, NodeInfo, favourite again, and the memory is there."""
    await told(world)
    await rekeyed(world)
    await world.zoe.send_dm(world.bot, "Hello?")
    await world.until(lambda: world.value("SELECT count(*) FROM nodes WHERE key_alarm_at IS NOT NULL"))
    old = world.value("SELECT public_key FROM identities")
    result = await accepted(world)
    assert result == {"node_id": world.zoe.node.id, "fingerprint": "", "replaced": fingerprint(old)}
    await forget_and_meet(world)
    assert "ridge" in await world.answer("Where is my camp?")
    await world.until(lambda: world.bot.database.get(world.zoe.num).favourite)
    assert world.value("SELECT count(*) FROM nodes WHERE key_alarm_at IS NOT NULL") == 0
    assert world.value("SELECT count(*) FROM conversations WHERE closed_at IS NULL") == 1


async def stranger_in_her_name(world):
    """The radio's database lost Zoe's key (evicted, or removed by hand): now another key speaks for her number."""
    world.bot.database.forget(world.zoe.num)
    world.zoe.node.rekey()
    world.zoe.node.meet(world.bot)
    world.bot.meet(world.zoe.node)


async def test_stranger_key_sees_no_memory_and_resets_nothing(world):
    """M14, S0-12: a number anybody can forge is nobody."""
    await told(world)
    await stranger_in_her_name(world)
    assert "ridge" not in await world.answer("Where is my camp?")
    await world.answer("!reset")  # clears the stranger's own
    assert "ridge" not in await world.answer("!recall ridge")
    assert world.value("SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conv_id AND m.epoch = c.epoch"
                       " WHERE m.content LIKE '%ridge%' AND m.role = 'user' AND NOT m.is_command") == 1  # fmt: skip


async def test_stranger_key_is_no_admin(build):
    """M14: admin rights belong to the pinned key."""
    world = await build(access={"admins": ["!0bad0000"]})
    node = world.zoe.node
    world.sections["access"] = {"admins": [f"{node.id} {base64.b64encode(node.public_key).decode()}"]}
    await world.restart()
    await world.up()
    assert "pause" in (await world.answer("!admin pause 1m")).lower()
    await world.answer("!admin resume")
    await stranger_in_her_name(world)
    assert await world.answer("!admin pause 2h") == "I do not know !admin. Try !help."
    assert not world.daemon.pause.is_on


async def test_accepting_a_stranger_shows_both_keys_and_joins(world):
    """DESIGN §3 Identity: both fingerprints; the old key is revoked, the stranger's conversation closed."""
    await told(world)
    old = fingerprint(world.zoe.node.public_key)
    await stranger_in_her_name(world)
    await world.answer("Where is my camp?")
    new = fingerprint(world.zoe.node.public_key)
    rows = await world.control("identity.list")
    assert {(row["fingerprint"], row["standing"]) for row in rows} == {(old, "known"), (new, "waiting")}
    result = await accepted(world)
    assert (result["fingerprint"], result["replaced"]) == (new, old)
    await forget_and_meet(world)
    assert "ridge" in await world.answer("Where is my camp?")
    assert world.value("SELECT count(*) FROM conversations WHERE closed_at IS NOT NULL") == 1


async def test_accept_without_a_new_key_is_refused(world):
    await told(world)
    with pytest.raises(UsageError, match="no key waiting"):
        await accepted(world)


async def test_answer_goes_only_to_the_key_that_asked(world):
    """§3.1: an answer waiting for Zoe is not readable by whoever shows up under her number."""
    world.server.rule = lambda _prompt: words("secret", 6)
    await told(world)
    seen = len(world.zoe.received)
    world.port.refuse(60.0)  # the answer is made while the radio is away
    await world.zoe.send_dm(world.bot, "And now?")
    await stranger_in_her_name(world)
    await world.up()
    await world.pass_time(200)
    assert "secret" not in world.said(since=seen)


async def test_removed_from_the_radio_and_back_by_nodeinfo(world):
    """§9.1: after removal our send gives 39 until the NodeInfo exchange; then the held answer goes out."""
    await told(world)
    world.server.rule = lambda _prompt: "late but true"
    world.bot.settings.database = 100
    sent = await world.ask("Are you there?")
    world.bot.database.forget(world.zoe.num)
    await world.quiet()
    world.zoe.node.modules.send_nodeinfo(at_once=True)
    await world.until(lambda: "late but true" in world.said(), 30)
    assert sent.packet_id
