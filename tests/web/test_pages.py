"""What the operator reads."""

import logging
import re
from dataclasses import replace

import pytest
from support.inbox_world import KEY, OTHER_KEY, ZOE

from meshai.identity import fingerprint
from meshai.llm.base import CallRecord, ChatMessage, ChatRequest, Outcome, Purpose, Usage
from meshai.radio.contact import contact_url
from meshai.setup.qr import matrix
from meshai.storage import calls, nodes

EVIL = "<script>alert(1)</script>"
USAGE = Usage(prompt_tokens=400, cached_tokens=300, completion_tokens=20)
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


def modules(path):
    """The dark places of the drawn code."""
    runs = re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path)
    return {(x, int(y)) for start, y, width in runs for x in range(int(start), int(start) + int(width))}


def modules_of(rows):
    return {(x, y) for y, row in enumerate(rows) for x, is_dark in enumerate(row) if is_dark}


async def newest(page, table):
    return await page.station.db.fetch_value(f"SELECT max(id) FROM {table}")


async def record_call(page, *, inbound_id=None, text="the question"):
    request = ChatRequest(
        messages=(ChatMessage("system", "You are brief."), ChatMessage("user", text)),
        purpose=Purpose.REPLY, max_tokens=50, conv_id=1, inbound_id=inbound_id,
    )  # fmt: skip
    call = CallRecord(
        request=request, purpose=Purpose.REPLY, endpoint="local", model="llama", usage=USAGE,
        first_token_ms=250, ms=1500, outcome=Outcome.OK, started_at=1_790_000_000.0,
    )  # fmt: skip
    return await page.station.db.transaction(lambda tx: calls.record(tx, call))


async def name(page, node_id, long_name):
    now = page.site.clock.now()
    await page.station.db.transaction(lambda tx: nodes.heard(tx, node_id, now=now, hops=2, long_name=long_name))


@pytest.mark.parametrize("path", ["/", "/nodes", "/conversations", "/calls", "/log"])
async def test_pages_of_an_empty_daemon_open(page, path):
    answer = await page.browser.get(path)
    assert answer.status_code == 200
    assert 'aria-current="page"' in answer.text


async def test_overview_shows_the_bots_contact(page):
    node = replace(page.station.daemon.link.node, public_key=KEY, long_name=EVIL)
    page.station.daemon.link.node = node
    text = (await page.browser.get("/")).text
    url = contact_url(node)
    assert f'href="{url}"' in text
    assert EVIL not in text
    assert modules(re.search(r'<path class="dark" d="([^"]+)"', text)[1]) == modules_of(matrix(url))


async def test_overview_before_the_node_was_seen_shows_no_contact(page):
    page.station.daemon.link.node = None
    answer = await page.browser.get("/")
    assert answer.status_code == 200
    assert "meshtastic.org" not in answer.text


async def test_what_does_not_exist_is_404(page):
    paths = [
        "/nope", "/nodes/zoe", "/nodes/!0000ffff", "/nodes/!0000a001%0a", "/conversations/99", "/conversations/-1",
        "/answers/x", "/answers/99", "/calls/99", "/static/nope.css", "/static/..%2fapp.py", "/static/%2e%2e/app.py",
        "/nodes?from=-5", "/calls?before=1e9", "/conversations/9999999999999999999999",
    ]  # fmt: skip
    statuses = {path: (await page.browser.get(path)).status_code for path in paths}
    assert statuses == dict.fromkeys(paths, 404)


async def test_conversation_shows_both_sides_and_receipts(page):
    await page.station.dm("where is north?")
    text = (await page.browser.get(f"/conversations/{await newest(page, 'conversations')}")).text
    assert "where is north?" in text
    assert "Answer 1." in text
    assert "delivered" in text
    assert f'href="/answers/{await newest(page, "answers")}"' in text


async def test_answer_shows_the_exact_prompt_and_each_part(page):
    await page.station.dm("where is north?")
    await record_call(page, inbound_id=await newest(page, "inbound"), text="exactly this was asked")
    text = (await page.browser.get(f"/answers/{await newest(page, 'answers')}")).text
    assert "exactly this was asked" in text
    assert "You are brief." in text
    assert "part 1 of 1" in text
    assert "delivered" in text


async def test_calls_show_latency_tokens_and_cache(page):
    await page.station.dm("hello")
    call_id = await record_call(page)
    text = (await page.browser.get("/calls")).text
    assert "1 500 ms" in text
    assert "75 %" in text
    assert "You are brief." in (await page.browser.get(f"/calls/{call_id}")).text


async def test_strange_names_and_texts_are_never_markup(page):
    await page.station.dm(EVIL)
    await name(page, ZOE, EVIL)
    page.station.model.replies = [EVIL]
    await page.station.dm("say it")
    await record_call(page, inbound_id=await newest(page, "inbound"), text=EVIL)
    logging.getLogger("meshai.test").warning("%s", EVIL)
    paths = [
        "/", "/nodes", f"/nodes/{ZOE}", f"/nodes/{ZOE}/forget", f"/nodes?q={EVIL}", "/conversations",
        "/conversations/1", "/conversations/1/memory?words=script", "/answers/1", "/answers/2", "/calls", "/calls/1",
        "/log",
    ]  # fmt: skip
    pages = {path: (await page.browser.get(path)).text for path in paths}
    assert [path for path, text in pages.items() if EVIL in text] == []
    assert SHOWN in pages["/nodes"]
    assert SHOWN in pages["/conversations/1"]
    assert SHOWN in pages["/log"]


async def test_node_page_tells_keys_apart(page):
    await page.station.dm("hello", key=KEY)
    await page.station.dm("me too", key=OTHER_KEY)
    text = (await page.browser.get(f"/nodes/{ZOE}")).text
    assert fingerprint(KEY) in text
    assert f'value="{fingerprint(OTHER_KEY)}"' in text
    assert "second key" in (await page.browser.get("/nodes")).text
    assert f"/nodes/{ZOE}" in (await page.browser.get("/")).text


async def test_nodes_are_found_by_name_and_paged(page):
    await name(page, ZOE, "Zoe on the hill")
    for number in range(60):
        await name(page, f"!{number:08x}", f"Node {number}")
    first, found = await page.browser.get("/nodes"), await page.browser.get("/nodes?q=HILL")
    assert "?from=50" in first.text
    assert "Zoe" in found.text
    assert "Node 5" not in found.text
    assert "Zoe" in (await page.browser.get("/nodes?from=50")).text


async def test_memory_page_shows_summaries_facts_and_search(open_page):
    page = await open_page(memory={"window_pairs": 1, "facts": True})
    for text in ("My dog is called Pixel", "I live in Freiburg", "What is LoRa?", "And SNR?", "!remember I am DL1ABC"):
        await page.station.dm(text)
    page.station.model.gate.clear()  # no model improves the digest while we look
    await page.browser.post("/conversations/1/compact", via="/conversations/1/memory")
    text = (await page.browser.get("/conversations/1/memory?words=Freiburg")).text
    assert "level 1" in text
    assert "version 1" in text
    assert "DL1ABC" in text
    assert "I live in Freiburg" in text
    page.station.model.gate.set()


async def test_log_tail_hides_secrets_and_can_be_narrowed(page):
    logging.getLogger("meshai.test").warning("the token is correct-horse-battery")
    logging.getLogger("meshai.test").error("serious")
    everything, errors = await page.browser.get("/log"), await page.browser.get("/log?level=errors")
    assert "the token is ***" in everything.text
    assert "serious" in errors.text
    assert "the token is" not in errors.text


async def test_log_tail_is_bounded(page):
    for number in range(700):
        logging.getLogger("meshai.test").warning("line %d %s", number, "x" * 5000)
    lines = page.server.tail.lines()
    assert len(lines) == 500
    assert max(len(line.text) for line in lines) < 2100


async def test_health_says_ok_and_nothing_more(open_page):
    page = await open_page(token="correct-horse-battery")
    answer = await page.browser.get("/health")
    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_metrics_are_prometheus_text(page):
    await page.station.dm("hello")
    page.station.daemon.inbox.counters.dropped['we"ird\n'] = 2
    answer = await page.browser.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert "meshai_link_up 1" in lines
    assert 'meshai_parts_settled_total{fate="delivered"} 1' in lines
    assert 'meshai_packets_dropped_total{reason="we\\"ird\\n"} 2' in lines
    samples = [line for line in lines if not line.startswith("#")]
    assert all(float(line.rsplit(" ", 1)[1]) >= 0 for line in samples)
    assert len({line.split("{")[0].split(" ")[0] for line in samples}) > 15
    assert ZOE not in answer.text


async def test_error_in_a_page_is_a_page_and_a_log_line(page, monkeypatch, caplog):
    monkeypatch.setattr(page.site, "problems", lambda: 1 / 0)
    answer = await page.browser.get("/")
    assert answer.status_code == 500
    assert "This page failed" in answer.text
    assert "ZeroDivisionError" not in answer.text
    assert "the page / failed" in caplog.text
