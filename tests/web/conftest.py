"""The page of a running daemon, over real sockets."""

import re
from types import SimpleNamespace

import httpx2
import pytest
from support.station import Station

from meshai.config.model import Web
from meshai.web.server import WebServer

TOKEN = "correct-horse-battery"


class Browser:
    """A client that keeps cookies and fills in forms as a browser does."""

    def __init__(self, base):
        self.base = base
        self.http = httpx2.AsyncClient(base_url=base, timeout=10, follow_redirects=False)

    async def get(self, path, **more):
        return await self.http.get(path, **more)

    async def csrf(self, path="/"):
        page = await self.http.get(path)
        return re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)[1]

    async def post(self, path, *, via="/", headers=None, **fields):
        data = {"csrf": await self.csrf(via)} | fields
        return await self.http.post(path, data=data, headers={"Origin": self.base, **(headers or {})})

    async def log_in(self, token=TOKEN):
        return await self.post("/login", via="/login", token=token)


@pytest.fixture
async def open_page(tmp_path):
    """``await open_page(token="")`` starts a daemon with its page; gives station, server, browser, base."""
    opened = []

    async def start(token="", **sections):
        station = Station(tmp_path / f"meshai{len(opened)}.db", **sections)
        await station.start()
        web = Web.model_construct(enabled=True, host="127.0.0.1", port=0, token=Web(token=token).token)
        server = WebServer(station.daemon, web, secrets=[TOKEN])
        assert await server.start()
        base = f"http://127.0.0.1:{server.port}"
        page = SimpleNamespace(station=station, server=server, base=base, browser=Browser(base), site=server.site)
        opened.append(page)
        return page

    yield start
    for page in opened:
        await page.browser.http.aclose()
        await page.server.stop()
        await page.station.stop()


@pytest.fixture
async def page(open_page):
    """A page without a token."""
    return await open_page()
