"""Accepting a changed key end to end: memory joined, radio told (DESIGN §3 Identity, protocol.md §9.5)."""

import asyncio

from support.inbox_world import KEY, OTHER_KEY, ZOE

from meshai.identity import fingerprint
from meshai.operations.base import silent
from meshai.radio.link import node_num


async def test_changed_key_is_a_stranger_until_accepted(station):
    await station.dm("My name is NUGGET1.")
    await station.dm("Who am I?", key=OTHER_KEY)
    assert all("NUGGET1" not in m.content for m in station.prompt().all)
    rows = await station.daemon.operations["identity.list"]({}, silent)
    assert [(row["fingerprint"], row["standing"]) for row in rows] == [
        (fingerprint(KEY), "known"),
        (fingerprint(OTHER_KEY), "waiting"),
    ]
    done = await station.daemon.operations["identity.accept"]({"node": ZOE}, silent)
    assert (done["fingerprint"], done["replaced"]) == (fingerprint(OTHER_KEY), fingerprint(KEY))
    await station.dm("Who am I?", key=OTHER_KEY)
    assert any("NUGGET1" in m.content for m in station.prompt().all)
    assert station.link.removed == [node_num(ZOE)]


async def test_users_nodes_become_favourites_once(station):
    await station.dm("hello")
    await station.dm("hello again")
    await asyncio.sleep(0.05)
    assert station.link.favourites == [node_num(ZOE)]
    await station.restart()
    await station.dm("and again")
    await asyncio.sleep(0.05)
    assert station.link.favourites == [node_num(ZOE)]


async def test_strangers_do_not_become_favourites(start_station):
    station = await start_station(access={"favourite": False})
    await station.dm("hello")
    await asyncio.sleep(0.02)
    assert station.link.favourites == []
