"""A person is a public key (DESIGN §3 Identity)."""

import pytest
from support.inbox_world import KEY, OTHER_KEY, ZOE

from meshai import identity
from meshai.errors import UsageError
from meshai.identity import Standing, fingerprint
from meshai.storage import nodes


async def see(world, key, **more):
    return await world.db.transaction(lambda tx: identity.identify(tx, ZOE, key, now=world.clock.now(), **more))


async def key_of(world, person):
    return await world.db.fetch_value("SELECT key FROM conversations WHERE id = ?", (person.conv_id,))


async def test_first_key_owns_the_nodes_conversation(world):
    person = await see(world, KEY)
    assert person.standing is Standing.KNOWN
    assert await key_of(world, person) == f"dm:{ZOE}"
    assert (await see(world, KEY)).conv_id == person.conv_id


async def test_second_key_is_a_different_person(world, caplog):
    first = await see(world, KEY)
    second = await see(world, OTHER_KEY)
    assert second.standing is Standing.STRANGER
    assert second.conv_id != first.conv_id
    assert await key_of(world, second) == f"dm:{ZOE}#{fingerprint(OTHER_KEY)}"
    await see(world, OTHER_KEY)
    assert caplog.text.count("shows a new key") == 1


async def test_accepting_joins_the_key_and_revokes_the_old_one(world):
    first, second = await see(world, KEY), await see(world, OTHER_KEY)
    await world.db.transaction(lambda tx: identity.accept(tx, ZOE, now=1.0))
    joined = await see(world, OTHER_KEY)
    assert (joined.conv_id, joined.standing) == (first.conv_id, Standing.KNOWN)
    assert await world.db.fetch_value("SELECT closed_at FROM conversations WHERE id = ?", (second.conv_id,)) == 1.0
    old = await see(world, KEY)
    assert old.standing is Standing.STRANGER
    assert old.conv_id not in (first.conv_id, second.conv_id)


async def test_accepting_needs_a_waiting_key_and_a_choice(world):
    await see(world, KEY)
    with pytest.raises(UsageError, match="no key waiting"):
        await world.db.transaction(lambda tx: identity.accept(tx, ZOE, now=1.0))
    await see(world, OTHER_KEY)
    await see(world, b"\x07" * 32)
    with pytest.raises(UsageError, match="several keys"):
        await world.db.transaction(lambda tx: identity.accept(tx, ZOE, now=1.0))
    new, old = await world.db.transaction(lambda tx: identity.accept(tx, ZOE, fingerprint(OTHER_KEY), now=1.0))
    assert (new, old) == (OTHER_KEY, KEY)


async def test_number_that_showed_a_key_gets_no_memory_without_it(world):
    await see(world, KEY)
    person = await see(world, None)
    assert (person.standing, person.conv_id) == (Standing.STATELESS, None)


async def test_number_without_key_keeps_its_conversation_from_a_later_key(world):
    by_number = await see(world, None)
    assert by_number.standing is Standing.NUMBER
    keyed = await see(world, KEY)
    assert keyed.conv_id != by_number.conv_id
    assert await key_of(world, keyed) == f"dm:{ZOE}#{fingerprint(KEY)}"
    assert keyed.standing is Standing.KNOWN


async def test_pinned_admin_key_counts_as_seen_first(world):
    impostor = await see(world, OTHER_KEY, pinned=KEY)
    assert impostor.standing is Standing.STRANGER
    owner = await see(world, KEY, pinned=KEY)
    assert (owner.standing, await key_of(world, owner)) == (Standing.KNOWN, f"dm:{ZOE}")


async def test_admin_rights_belong_to_a_key(world):
    import base64

    pinned = f"{ZOE} {base64.b64encode(KEY).decode()}"
    owner, stranger = await see(world, KEY), await see(world, OTHER_KEY)
    assert identity.is_admin([ZOE], owner)
    assert identity.is_admin([pinned], owner)
    assert not identity.is_admin([ZOE], stranger)
    assert not identity.is_admin([pinned], stranger)
    assert not identity.is_admin([ZOE], await see(world, None))


async def alarmed(world, fingerprint=""):
    """A reset node: known by one key, its next DM could not be opened, the operator said yes."""
    await see(world, KEY)
    await world.db.transaction(lambda tx: nodes.heard(tx, ZOE, now=world.clock.now()))
    await world.db.transaction(lambda tx: nodes.raise_key_alarm(tx, ZOE, now=world.clock.now()))
    return await world.db.transaction(lambda tx: identity.accept(tx, ZOE, fingerprint, now=world.clock.now()))


async def test_key_after_an_accepted_alarm_joins_once(world):  # protocol.md §9.5
    assert await alarmed(world) == (None, KEY)
    assert (await see(world, OTHER_KEY)).standing is Standing.KNOWN
    assert not await nodes.has_key_alarm(world.db, ZOE)
    assert (await see(world, b"\x07" * 32)).standing is Standing.STRANGER


@pytest.mark.parametrize("late_s", [-1.0, identity.EXPECT_S + 1])
async def test_expected_key_comes_in_time_or_is_a_stranger(world, late_s):
    await alarmed(world)
    world.clock.advance(late_s)
    assert (await see(world, OTHER_KEY)).standing is Standing.STRANGER


async def test_expected_fingerprint_lets_no_other_key_in(world):
    await alarmed(world, fingerprint(OTHER_KEY))
    assert (await see(world, b"\x07" * 32)).standing is Standing.STRANGER
    assert (await see(world, OTHER_KEY)).standing is Standing.KNOWN


async def test_key_of_the_configuration_is_replaced_by_nobody(world):
    await alarmed(world)
    assert (await see(world, OTHER_KEY, pinned=KEY)).standing is Standing.STRANGER
