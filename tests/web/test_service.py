"""The page as part of ``meshai run``."""

import socket
import sys

import httpx2
import pytest

from meshai import web
from meshai.config.loader import Loaded
from meshai.config.model import Settings
from meshai.demo.stage import Stage
from meshai.errors import MissingError
from meshai.service import Service


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2"])
async def test_missing_extra_is_said_before_anything_starts(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    settings = Settings.model_validate({"web": {"enabled": True}, "storage": {"database": str(tmp_path / "x.db")}})
    with pytest.raises(MissingError, match=r"pip install 'meshai\[web\]'") as caught:
        await Service(Loaded(settings, None), signals=False).run()
    assert caught.value.exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_installed_extra_is_found():
    web.require()


async def test_running_service_shows_its_page(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Stage(tmp_path, sections={"web": {"enabled": True, "port": port}}) as stage:
        await stage.start_bot()
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            text = (await client.get("/")).text
            assert f"!{stage.bot:08x}" in text
            assert "connected" in text
            assert "meshai_link_up 1" in (await client.get("/metrics")).text
        await stage.stop_bot()
        async with httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"http://127.0.0.1:{port}/health")
