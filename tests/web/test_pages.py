"""What the operator reads."""

import pytest
from support.inbox_world import ZOE

EVIL = "<script>alert(1)</script>"


async def ids(page):
    conv = await page.station.db.fetch_value("SELECT max(id) FROM conversations")
    answer = await page.station.db.fetch_value("SELECT max(id) FROM answers")
    call = await page.station.db.fetch_value("SELECT max(id) FROM llm_calls")
    return conv, answer, call


@pytest.mark.parametrize("path", ["/", "/nodes", "/conversations", "/calls", "/log"])
async def test_pages_of_an_empty_daemon_open(page, path):
    answer = await page.browser.get(path)
    assert answer.status_code == 200
    assert 'aria-current="page"' in answer.text
    assert "Content-Security-Policy".lower() in answer.headers


async def test_conversation_shows_both_sides_and_receipts(page):
    await page.station.dm("where is north?")
    conv, answer, _ = await ids(page)
    text = (await page.browser.get(f"/conversations/{conv}")).text
    assert "where is north?" in text
    assert "Answer 1." in text
    assert "delivered" in text
    assert f'href="/answers/{answer}"' in text
