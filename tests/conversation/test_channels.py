"""Opted-in channels: mention only, one part, by DM where the key is known (DESIGN §3 item 2; field.md E.2)."""

from support.inbox_world import ZOE

HEARD = {"is_dm": False, "to_num": 0xFFFFFFFF, "channel_name": "bot", "channel_index": 1, "key": None}
LONG = "This sentence tells something about the mesh and its radios, one by one. " * 12


async def test_unknown_key_is_answered_on_the_channel_in_one_part(start_station):
    station = await start_station(channels=[{"name": "bot"}])
    station.model.replies = [LONG]
    await station.dm("@ai tell me everything", **HEARD)
    (request,) = station.link.sent
    assert (request.channel_index, request.public_key) == (1, None)
    assert len(request.text.encode()) <= 200


async def test_known_key_is_answered_by_dm(start_station):
    station = await start_station(channels=[{"name": "bot"}])
    await station.dm("hello")
    await station.dm("@ai and here?", **HEARD)
    assert station.link.sent[-1].public_key == bytes(range(32))
    assert station.link.sent[-1].reply_id is None


async def test_channel_and_dm_are_different_conversations(start_station):
    station = await start_station(channels=[{"name": "bot"}])
    await station.dm("My secret is NUGGET1.")
    await station.dm("@ai what is my secret?", **HEARD)
    assert all("NUGGET1" not in m.content for m in station.prompt().all)
    await station.dm("what did I ask on the channel?")
    assert all("what is my secret" not in m.content for m in station.prompt().all)


async def test_channel_cannot_reset_or_administer(start_station):
    station = await start_station(channels=[{"name": "bot"}], access={"admins": [ZOE]})
    await station.dm("hello")
    await station.dm("@ai !reset", **HEARD)
    assert station.texts()[-1] == "Please ask me that in a direct message."
    await station.dm("@ai !admin pause", **HEARD)
    assert len(station.texts()) == 2  # silence: on a channel an unknown command gets no hint
