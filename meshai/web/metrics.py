"""Prometheus text, written by hand: forty figures need no library. No node and no person appears in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshai import __version__
from meshai.radio.link import LinkState
from meshai.storage import panels
from meshai.web.site import Site

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATM = Path("/proc/self/statm")
PAGE_BYTES = 4096


@dataclass
class Exposition:
    """Collects figures in the text format of Prometheus."""

    lines: list[str] = field(default_factory=list)

    def add(
        self, name: str, kind: str, what: str, values: Iterable[tuple[Mapping[str, str], float | int | bool | None]]
    ) -> None:
        """One metric with its labelled values; what is not known is left out."""
        rows = [(labels, float(value)) for labels, value in values if value is not None]
        if not rows:
            return
        self.lines += [f"# HELP meshai_{name} {what}", f"# TYPE meshai_{name} {kind}"]
        for labels, value in rows:
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            self.lines.append(f"meshai_{name}{{{inner}}} {value:.17g}" if inner else f"meshai_{name} {value:.17g}")

    def one(self, name: str, kind: str, what: str, value: float | bool | None) -> None:
        """A metric without labels."""
        self.add(name, kind, what, [({}, value)])

    def text(self) -> str:
        """The finished document."""
        return "\n".join(self.lines) + "\n"


async def exposition(site: Site) -> str:
    """Everything worth a graph."""
    made = Exposition()
    _process(made, site)
    _delivery(made, site, await panels.counters(site.reader))
    _model(made, site)
    return made.text()


def _process(made: Exposition, site: Site) -> None:
    daemon = site.daemon
    path = daemon.db.path
    made.add("info", "gauge", "The running version.", [({"version": __version__}, 1)])
    made.one("uptime_seconds", "gauge", "Since the daemon's start.", site.clock.monotonic() - daemon.started_at)
    made.one("healthy", "gauge", "Whether inbox and outbox move.", daemon.health.judge().feed)
    made.one("link_up", "gauge", "Whether the node is connected.", daemon.link.state is LinkState.UP)
    made.one("paused", "gauge", "Whether only admins are answered.", daemon.pause.is_on)
    made.one("problems", "gauge", "Settings of the node that need the operator.", len(daemon.problems()))
    made.one("resident_memory_bytes", "gauge", "Memory of the process.", _resident())
    made.one("database_bytes", "gauge", "Size of the database file.", path.stat().st_size if path.exists() else None)
    made.add(
        "packets_dropped_total", "counter", "Incoming packets not taken, by reason.",
        [({"reason": reason}, count) for reason, count in sorted(daemon.inbox.counters.dropped.items())],
    )  # fmt: skip


def _delivery(made: Exposition, site: Site, figures: Mapping[str, int]) -> None:
    daemon = site.daemon
    delivery, air = daemon.sender.status(), daemon.governor.status()
    states = {state: _figure(delivery.get(state)) for state in ("queued", "in_flight", "held")}
    made.one("questions_waiting", "gauge", "Questions that wait for an answer.", daemon.responder.waiting)
    made.add(
        "packets", "gauge", "Outgoing packets by state.", [({"state": key}, count) for key, count in states.items()]
    )
    made.one("parts_sent_total", "counter", "Parts of answers handed to the node.", figures["parts_sent"])
    made.add(
        "parts_settled_total", "counter", "Parts of answers by what became of them.",
        [({"fate": fate}, figures[f"parts_{fate}"]) for fate in ("delivered", "relayed", "failed")],
    )  # fmt: skip
    made.one("airtime_used_percent", "gauge", "Own transmissions in the last hour.", _figure(air["used_percent"]))
    made.one("airtime_budget_percent", "gauge", "What airtime.budget_percent allows.", _figure(air["budget_percent"]))
    made.one(
        "channel_utilization_percent", "gauge", "The node's measure of the channel.",
        _figure(air["channel_utilization_percent"]),
    )  # fmt: skip
    made.one("air_util_tx_percent", "gauge", "The node's measure of itself.", _figure(air["air_util_tx_percent"]))
    made.one("nodes", "gauge", "Nodes heard.", figures["nodes"])
    made.one("conversations", "gauge", "Conversations stored.", figures["conversations"])
    made.one("messages_total", "counter", "Messages archived.", figures["messages"])


def _model(made: Exposition, site: Site) -> None:
    status = site.daemon.model.status()
    found = status.get("endpoints")
    endpoints = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    def each(key: str) -> list[tuple[dict[str, str], float | None]]:
        return [({"endpoint": str(entry.get("name", ""))}, _figure(entry.get(key))) for entry in endpoints]

    made.one("model_busy", "gauge", "Requests the model is answering.", _figure(status.get("busy")))
    made.add("model_calls_total", "counter", "Requests by endpoint.", each("calls"))
    made.add("model_prompt_tokens_total", "counter", "Tokens sent.", each("prompt_tokens"))
    made.add("model_cached_tokens_total", "counter", "Tokens sent that came from the cache.", each("cached_tokens"))
    made.add("model_completion_tokens_total", "counter", "Tokens received.", each("completion_tokens"))
    made.add("model_failures", "gauge", "Failures in a row by endpoint.", each("failures"))
    made.add(
        "model_ready", "gauge", "Whether the endpoint is not resting after a failure.",
        [({"endpoint": str(entry.get("name", ""))}, entry.get("state") == "ready") for entry in endpoints],
    )  # fmt: skip


def _figure(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _resident() -> int | None:
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
