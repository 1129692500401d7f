"""What the operator does from the page."""

import pytest
from support.inbox_world import KEY, OTHER_KEY, ZOE

from meshai.identity import fingerprint
from meshai.storage import nodes


async def said(page, path="/"):
    return (await page.browser.get(path)).text


async def test_pause_and_resume(page):
    answer = await page.browser.post("/pause")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert page.station.daemon.pause.is_on
    assert "only admins are answered" in await said(page)
    await page.station.dm("hello?")
    assert page.station.texts() == []
    await page.browser.post("/resume")
    await page.station.dm("hello?")
    assert len(page.station.texts()) == 1


async def test_what_was_done_is_said_once(page):
    await page.browser.post("/pause")
    assert 'role="status"' in await said(page)
    assert 'role="status"' not in await said(page)


async def test_block_and_unblock(page):
    await page.station.dm("hello")
    await page.browser.post(f"/nodes/{ZOE}/block", via=f"/nodes/{ZOE}")
    await page.station.dm("are you there?")
    assert len(page.station.texts()) == 1
    assert "blocked" in await said(page, "/nodes")
    await page.browser.post(f"/nodes/{ZOE}/unblock", via=f"/nodes/{ZOE}")
    assert not await nodes.is_blocked(page.station.db, ZOE, now=page.site.clock.now())


async def test_accepting_a_key_joins_it_to_its_node(page):
    await page.station.dm("I am Zoe", key=KEY)
    await page.station.dm("new phone", key=OTHER_KEY)
    await page.browser.post(f"/nodes/{ZOE}/accept", via=f"/nodes/{ZOE}", fingerprint=fingerprint(OTHER_KEY))
    keys = {key.fingerprint: key.standing for key in await page.site.keys_of(ZOE)}
    assert keys == {fingerprint(KEY): "revoked", fingerprint(OTHER_KEY): "known"}


@pytest.mark.parametrize(("given", "status"), [("", 400), ("ffffffff", 303)])
async def test_accepting_needs_the_very_key(page, given, status):
    await page.station.dm("I am Zoe", key=KEY)
    await page.station.dm("new phone", key=OTHER_KEY)
    answer = await page.browser.post(f"/nodes/{ZOE}/accept", via=f"/nodes/{ZOE}", fingerprint=given)
    assert answer.status_code == status
    assert "waiting" in {key.standing for key in await page.site.keys_of(ZOE)}


async def test_forgetting_wants_the_node_id_typed(page):
    await page.station.dm("my secret")
    place = f"/nodes/{ZOE}/forget"
    await page.browser.post(place, via=place, typed="yes")
    assert await page.station.db.fetch_value("SELECT count(*) FROM messages") == 2
    assert "Nothing was erased" in await said(page, place)
    await page.browser.post(place, via=place, typed=f" {ZOE.upper()} ")
    assert await page.station.db.fetch_value("SELECT count(*) FROM messages") == 0
    assert "my secret" not in await said(page, "/conversations/1")


async def test_newest_answer_can_be_sent_again(page):
    await page.station.dm("hello")
    await page.browser.post("/answers/1/again", via="/answers/1")
    await page.station.quiet()
    assert len(page.station.texts()) == 2
    assert "1 packet queued" in await said(page, "/answers/1")


async def test_older_answers_are_not_sent_again(page):
    await page.station.dm("hello")
    await page.station.dm("and again")
    assert "Send again" not in await said(page, "/answers/1")
    await page.browser.post("/answers/1/again")
    assert "Only the newest answer" in await said(page, "/answers/1")
    assert len(page.station.texts()) == 2


async def test_answer_on_its_way_is_not_doubled(page):
    page.station.link.acks = False
    packet = await page.station.dm("hello")
    assert packet
    await page.browser.post("/answers/1/again", via="/answers/1")
    assert "on its way already" in await said(page, "/answers/1")


async def test_compact_says_when_there_is_nothing_to_do(page):
    await page.station.dm("hello")
    answer = await page.browser.post("/conversations/1/compact", via="/conversations/1/memory")
    assert "Nothing to compact" in await said(page, answer.headers["location"])


async def test_actions_on_nothing_are_404(page):
    paths = ["/nodes/zoe/block", "/answers/99/again", "/conversations/9/compact", "/answers/x/again"]
    assert {(await page.browser.post(path)).status_code for path in paths} == {404}
