"""The page in a real browser: headless Chromium from Debian's package."""

import asyncio
import os
import re
import shutil
import struct

import pytest

from meshai.web import live

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
    "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
)  # fmt: skip

if not CHROMIUM and not os.environ.get("CI"):
    pytest.skip("chromium is not installed (Debian: apt install chromium)", allow_module_level=True)


async def run(tmp_path, url, *more):
    """Chromium's standard output and error."""
    assert CHROMIUM, "the checking machine lacks chromium"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    env = os.environ | {"HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, profile, *more, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env
    )
    try:
        async with asyncio.timeout(50):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode(), err.decode()


@pytest.mark.parametrize("width", [500, 1280], ids=["phone", "desktop"])
async def test_overview_is_drawn_without_complaints(page, tmp_path, width):
    await page.station.dm("hello")
    picture = tmp_path / "page.png"
    _, complaints = await run(
        tmp_path, page.base, f"--window-size={width},900", f"--screenshot={picture}", "--enable-logging=stderr"
    )
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == (width, 900)
    assert not re.search(r"CONSOLE|Content Security Policy|Refused to", complaints)


async def test_strange_text_stays_text_in_the_browser(page, tmp_path):
    await page.station.dm("<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>")
    dom, _ = await run(tmp_path, f"{page.base}/conversations/1", "--dump-dom")
    assert "&lt;img src=x" in dom
    assert "<title>owned" not in dom
    assert "bubble" in dom


async def test_browser_asks_again_when_something_happened(page, tmp_path, monkeypatch):
    """Server-sent event, then the page once more: the script and the policy agree."""
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.05)
    asked_again = asyncio.Event()
    answer = page.site.html

    def spy(request, *args, **values):
        if "x-live" in request.headers:
            asked_again.set()
        return answer(request, *args, **values)

    monkeypatch.setattr(page.site, "html", spy)
    watching = asyncio.create_task(run(tmp_path, f"{page.base}/conversations", "--remote-debugging-port=0"))
    try:
        while not page.site.live.streams:
            await asyncio.sleep(0.05)
        await page.site.live.look()
        await page.station.dm("news")
        async with asyncio.timeout(20):
            await asked_again.wait()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
