"""Live updates, the day's figures and their plots."""

import asyncio
import re
import socket

import pytest
from support.inbox_world import FakeClock
from support.station import Station

from meshai.config.model import Web
from meshai.web import live, plots
from meshai.web.history import KEPT, History, Sample
from meshai.web.live import MOST_STREAMS, Live
from meshai.web.server import WebServer


async def test_stream_tells_of_a_new_message(page, monkeypatch):
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.01)
    async with page.browser.http.stream("GET", "/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        assert await anext(lines) == "retry: 5000"
        await page.site.live.look()
        await page.station.dm("hello")
        async for line in lines:
            if line.startswith("data:") and "data" in line.split()[1:]:
                break
    assert line.startswith("data: data")


async def test_nobody_looks_while_nobody_watches():
    looks = []

    async def probe():
        looks.append(1)
        return {}

    made = Live(probe, FakeClock())
    task = asyncio.create_task(made.run())
    await asyncio.sleep(0.01)
    assert looks == []
    task.cancel()


async def test_streams_are_bounded_and_given_back():
    async def probe():
        return {}

    made = Live(probe, FakeClock())
    streams = [made.events() for _ in range(MOST_STREAMS)]
    for stream in streams:
        await anext(stream)
    assert not made.has_room()
    await streams[0].aclose()
    assert made.has_room()
    await made.close()
    assert [event async for event in streams[1]] == []


async def test_stream_without_news_says_it_is_alive(monkeypatch):
    async def probe():
        return {}

    monkeypatch.setattr(live, "ALIVE_EVERY_S", 0.01)
    stream = Live(probe, FakeClock()).events()
    assert [await anext(stream), await anext(stream)] == ["retry: 5000\n\n", ": still here\n\n"]
    await stream.aclose()


async def test_history_keeps_a_day_and_no_more():
    clock = FakeClock()
    history = History(clock, lambda at: Sample(at, used_percent=at))
    for _ in range(KEPT + 100):
        history.sample()
        clock.advance(60)
    assert len(history.samples) == KEPT
    assert history.samples[-1].at == clock.monotonic() - 60


async def test_overview_plots_what_was_sampled(page):
    for _ in range(3):
        page.site.history.sample()
    text = (await page.browser.get("/")).text
    assert text.count("<svg viewBox") == 4
    assert "polyline" in text


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.01, 2), (23, 25), (26, 50), (99, 100), (float("inf"), 1)]
)
def test_top_of_an_axis_is_a_round_number(value, top):
    assert plots.nice_top(value) == top


def test_line_breaks_where_nothing_is_known():
    points = [(0.0, 1.0), (0.001, 2.0), (0.5, 1.0), (0.501, None), (0.502, 3.0)]
    svg = str(plots.lines("t", "%", [plots.Series("a", points)]).svg)
    assert svg.count("<polyline") == 3
    assert "nan" not in svg


def test_limit_out_of_reach_is_not_drawn():
    made = plots.lines("t", "%", [plots.Series("a", [(0.5, 4.0)])], limits=[("far", 40), ("near", 5)])
    assert made.limits == (("near", 5),)


def test_bars_stack_within_the_frame():
    svg = str(plots.bars("t", "", ("a", "b"), [[3, 2], [0, 0], [1, 9]]).svg)
    assert all(0 <= float(y) <= 100 for y in re.findall(r'<rect[^>]* y="([^"]+)"', svg))
    assert svg.count("<rect") == 4


async def test_stopping_ends_streams_at_once(page):
    async with page.browser.http.stream("GET", "/live") as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        await page.server.stop()
        assert "retry" not in "".join([line async for line in lines])
    assert page.site.live.streams == 0


async def test_port_that_is_taken_costs_the_page_only(tmp_path, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        station = Station(tmp_path / "meshai.db")
        await station.start()
        web = Web.model_construct(enabled=True, host="127.0.0.1", port=taken.getsockname()[1], token=Web().token)
        server = WebServer(station.daemon, web)
        assert not await server.start()
        await server.stop()
        assert "no page" in caplog.text
        await station.dm("hello")
        assert len(station.texts()) == 1
        await station.stop()
