"""What every part returns, and how it is shown."""

from __future__ import annotations

import math
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def row(what: str, goal: str, measured: str, ok: bool | None = None) -> dict[str, Any]:
    """One line of the table; ``ok`` None: there is no goal, the number is for comparison."""
    return {"what": what, "goal": goal, "measured": measured, "ok": ok}


def result(rows: Sequence[dict[str, Any]], **data: object) -> dict[str, Any]:
    """What a part's ``main`` returns: rows for the table and the raw numbers behind them."""
    return {"rows": list(rows), "data": data}


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that ``percent`` of all do not exceed (nearest rank); NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values_ms: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum, rounded."""
    return {
        "n": len(values_ms),
        "p50": round(percentile(values_ms, 50), 2),
        "p99": round(percentile(values_ms, 99), 2),
        "max": round(max(values_ms, default=math.nan), 2),
    }


def rss_mb(pid: int | str = "self") -> float:
    """Resident memory of a process now, in MB of 1e6 bytes (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} has no VmRSS")


def machine() -> dict[str, object]:
    """Where this was measured."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    return {
        "system": platform.platform(terse=True),
        "cpu": model or platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def table(part: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of one part for the terminal."""
    marks = {True: "ok", False: "MISSED", None: ""}
    what = max((len(str(r["what"])) for r in rows), default=0)
    goal = max((len(str(r["goal"])) for r in rows), default=0)
    seen = max((len(str(r["measured"])) for r in rows), default=0)
    lines = [
        f"  {r['what']:<{what}}  {r['goal']:<{goal}}  {r['measured']:<{seen}}  {marks[r['ok']]}".rstrip() for r in rows
    ]
    return "\n".join([part, *lines])


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
