"""Templates. Escaping is always on: names and texts come from strangers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from meshai import __version__
from meshai.clock import Clock
from meshai.ops.humanize import duration

HERE = Path(__file__).parent
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Pages:
    """``html(template, **values)``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "ago": self._ago,
            "clock": _clock_time,
            "duration": duration,
            "number": _number,
            "percent": _percent,
            "size": _size,
        }
        self._environment.globals |= {"version": __version__, "assets": asset_tag()}

    def html(self, template: str, values: Mapping[str, Any]) -> str:
        """The finished page."""
        return self._environment.get_template(template).render(values)

    def _ago(self, at: float | None) -> str:
        if not at:
            return "never"
        passed = self._clock.now() - at
        return "now" if -60 < passed < 5 else f"{duration(passed)} ago" if passed > 0 else "in the future"


def static_files() -> dict[str, tuple[bytes, str]]:
    """Every file of ``static/`` with its type, read once: no path of a request ever reaches the file system."""
    found = (HERE / "static").iterdir()
    return {path.name: (path.read_bytes(), KINDS[path.suffix]) for path in found if path.suffix in KINDS}


def asset_tag() -> str:
    """Changes with any static file, so that browsers may keep them."""
    digest = hashlib.sha256()
    for name, (content, _) in sorted(static_files().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()[:12]


def _clock_time(at: float | None) -> str:
    """The computer's local time."""
    if not at:
        return "–"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "–"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 10 or value == int(value) else f"{value:.2g}"


def _percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f} %" if value >= 10 or value == int(value) else f"{value:.2f} %"


def _size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
