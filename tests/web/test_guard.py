"""Who gets in, and what a stranger cannot do."""

import asyncio
import contextlib
import re
import socket

import pytest
from support.inbox_world import FakeClock

from meshai.radio.contact import contact_url
from meshai.web import guard, protocol
from meshai.web.access import GUESSES, SESSION_S, Guesses, Hosts, Sessions

TOKEN = "correct-horse-battery"


@pytest.fixture
async def locked(open_page):
    """A page that wants a token."""
    return await open_page(token=TOKEN)


# The name it is asked for by.


async def test_forged_host_is_refused(page):
    hosts = ["evil.example", "evil.example:8680", "127.0.0.1.evil.example", "10.0.0.1", "", "a b"]
    statuses = [(await page.browser.get("/", headers={"Host": host})).status_code for host in hosts]
    assert statuses == [421] * len(hosts)


async def test_loopback_names_are_served(page):
    hosts = ["localhost", "localhost:9999", "127.0.0.1", "[::1]:8680", "LOCALHOST"]
    statuses = [(await page.browser.get("/", headers={"Host": host})).status_code for host in hosts]
    assert statuses == [200] * len(hosts)


@pytest.mark.parametrize(
    ("configured", "header", "allowed"),
    [
        ("0.0.0.0", "192.168.1.5:8680", True), ("0.0.0.0", "[fe80::1]", True), ("0.0.0.0", "rebound.example", False),
        ("bot.lan", "bot.lan:8680", True), ("bot.lan", "xbot.lan", False), ("::1", "192.168.1.5", False),
        ("0.0.0.0", "0x7f000001.example", False), ("0.0.0.0", "localhost@evil", False),
    ],
)  # fmt: skip
def test_names_of_an_open_page(configured, header, allowed):
    assert Hosts(configured).allow(header) is allowed


# Forms.


async def test_post_without_csrf_token_changes_nothing(page):
    answer = await page.browser.http.post("/pause", data={}, headers={"Origin": page.base})
    assert answer.status_code == 403
    assert not page.station.daemon.pause.is_on


async def test_post_from_another_site_is_refused(page):
    for origin in ("http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1.evil:80"):
        assert (await page.browser.post("/pause", headers={"Origin": origin})).status_code == 403
    assert not page.station.daemon.pause.is_on


async def test_cross_site_fetch_metadata_is_refused(page):
    answer = await page.browser.post("/pause", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


async def test_csrf_token_of_another_session_is_refused(page):
    other = type(page.browser)(page.base)
    stolen = await other.csrf()
    await other.http.aclose()
    await page.browser.get("/")
    answer = await page.browser.http.post("/pause", data={"csrf": stolen}, headers={"Origin": page.base})
    assert answer.status_code == 403


async def test_other_methods_are_refused(page):
    methods = ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"]
    assert {(await page.browser.http.request(method, "/")).status_code for method in methods} == {405}


async def test_get_on_an_action_does_nothing(page):
    assert (await page.browser.get("/pause")).status_code == 405
    assert not page.station.daemon.pause.is_on


async def test_big_body_is_refused_and_named(page):
    csrf = await page.browser.csrf()
    answer = await page.browser.http.post("/pause", data={"csrf": csrf, "x": "y" * 10_000_000})
    assert answer.status_code == 413
    assert not page.station.daemon.pause.is_on


async def test_big_chunked_body_is_refused(page):
    async def chunks():
        for _ in range(50):
            yield b"x" * 10_000

    answer = await page.browser.http.post("/pause", content=chunks())
    assert answer.status_code == 413


async def test_announced_giant_body_is_not_waited_for(page):
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)
    writer.write(b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\nabc")
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_slow_body_is_given_up(page, monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)
    writer.write(b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
    assert b" 408 " in await reader.readline()
    writer.close()


async def test_only_forms_are_read(page):
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
        answer = await page.browser.http.post("/pause", content=b"{}", headers={"Content-Type": kind})
        assert answer.status_code == 415


async def test_form_with_a_thousand_fields_is_refused(page):
    body = "&".join(f"f{n}=1" for n in range(1000))
    answer = await page.browser.http.post(
        "/pause", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert answer.status_code == 400


# Headers.


async def test_every_answer_carries_the_security_headers(page):
    for path in ("/", "/nope", "/login", "/metrics", "/static/style.css"):
        headers = (await page.browser.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers


async def test_pages_have_no_inline_script_or_style(page):
    await page.station.dm("hello")
    for path in ("/", "/nodes", "/conversations/1", "/calls", "/log", "/answers/1"):
        text = (await page.browser.get(path)).text
        text = text.replace(contact_url(page.station.daemon.link.node), "")  # for a phone; nothing is loaded
        assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|javascript:|https?://", text), path


async def test_pages_are_not_kept_by_browsers(page):
    assert (await page.browser.get("/")).headers["cache-control"] == "no-store"


# The token.


async def test_pages_lead_strangers_to_the_login(locked):
    for path in ("/", "/nodes", "/conversations", "/calls", "/log", "/nope"):
        answer = await locked.browser.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")


async def test_machine_pages_answer_strangers_401(locked):
    for path in ("/metrics", "/live"):
        answer = await locked.browser.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_actions_are_closed_to_strangers(locked):
    answer = await locked.browser.post("/pause", via="/login")
    assert answer.status_code == 401
    assert not locked.station.daemon.pause.is_on


async def test_right_token_opens_the_page_with_a_strict_cookie(locked):
    before = (await locked.browser.get("/login")).cookies
    answer = await locked.browser.log_in()
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert next(iter(before.values())) not in cookie  # a session fixed beforehand is worth nothing
    assert (await locked.browser.get("/")).status_code == 200


async def test_logging_out_ends_the_session(locked):
    await locked.browser.log_in()
    kept = dict(locked.browser.http.cookies)
    await locked.browser.post("/logout")
    locked.browser.http.cookies.update(kept)
    assert (await locked.browser.get("/")).status_code == 303


async def test_bearer_token_opens_metrics_and_actions(locked):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert (await locked.browser.get("/metrics", headers=headers)).status_code == 200
    assert (await locked.browser.http.post("/pause", headers=headers)).status_code == 303
    assert locked.station.daemon.pause.is_on


async def test_wrong_bearer_is_refused(locked):
    for value in ("Bearer wrong", "Bearer", "Basic Og==", "Bearer " + TOKEN[:-1], TOKEN):
        assert (await locked.browser.get("/metrics", headers={"Authorization": value})).status_code == 401


async def test_wrong_tokens_are_slowed_down(locked):
    statuses = [(await locked.browser.log_in(f"guess {n}")).status_code for n in range(GUESSES + 1)]
    assert statuses == [401] * GUESSES + [429]
    answer = await locked.browser.log_in()  # the right one, too, has to wait: else guessing goes on
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0


async def test_wrong_token_is_not_echoed_or_logged(locked, caplog):
    answer = await locked.browser.log_in("my-other-password")
    assert "my-other-password" not in answer.text
    assert "my-other-password" not in caplog.text


def test_guesses_count_by_network_and_pass():
    clock = FakeClock()
    guesses = Guesses(clock)
    for number in range(GUESSES):
        guesses.wrong(f"2001:db8::{number}")
    assert guesses.wait_s("2001:db8::ffff") > 0
    assert guesses.wait_s("2001:db8:1::1") == 0
    clock.advance(60)
    assert guesses.wait_s("2001:db8::ffff") == 0


def test_guesses_of_many_addresses_are_bounded():
    guesses = Guesses(FakeClock())
    for number in range(3000):
        guesses.wrong(f"10.0.{number // 256}.{number % 256}")
    assert guesses.wait_s("192.168.0.1") > 0
    assert len(guesses._of) == 1024


def test_sessions_end_when_unused_and_are_bounded():
    clock = FakeClock()
    sessions = Sessions(TOKEN, clock)
    first = sessions.open()
    clock.advance(SESSION_S - 1)
    assert sessions.is_open(first)
    clock.advance(SESSION_S + 1)
    assert not sessions.is_open(first)
    opened = [sessions.open() for _ in range(150)]
    assert sum(sessions.is_open(session) for session in opened) == 100


# Connections.


async def connect(page, count, data=b""):
    made = []
    for _ in range(count):
        link = socket.create_connection(("127.0.0.1", page.server.port))
        link.setblocking(False)
        if data:
            link.send(data)
        made.append(link)
        await asyncio.sleep(0)
    return made


async def test_200_silent_connections_keep_neither_page_nor_bot_from_answering(page):
    silent = await connect(page, 200, b"GET / HTTP/1.1\r\nHo")
    await page.station.dm("still there?")
    assert page.station.texts()[0].startswith("Answer 1.")
    assert (await page.browser.get("/")).status_code == 200
    assert len(page.server._server.server_state.connections) <= protocol.MOST_CONNECTIONS
    for link in silent:
        link.close()


async def test_silent_connection_is_closed_in_time(page, monkeypatch):
    monkeypatch.setattr(protocol, "REQUEST_HEAD_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)
    assert await reader.read() == b""
    writer.close()


async def test_trickled_request_head_is_closed_in_time(page, monkeypatch):
    monkeypatch.setattr(protocol, "REQUEST_HEAD_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)

    async def trickle():
        while True:
            writer.write(b"G")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(trickle())
    with contextlib.suppress(ConnectionResetError):  # closed or reset: both end it
        assert await reader.read() == b""
    task.cancel()
    writer.close()


async def test_kept_connection_is_not_kept_for_ever(page, monkeypatch):
    monkeypatch.setattr(protocol, "REQUEST_HEAD_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await reader.read()).endswith(b"ok\n")
    writer.close()


async def test_rubbish_is_answered_and_closed(page):
    for rubbish in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\x00" * 40_000, b"A" * 40_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", page.server.port)
        writer.write(rubbish + b"\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
    assert (await page.browser.get("/health")).status_code == 200
