"""``meshai status``: asks the running daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from meshai.cli.text import printable

TIMEOUT_S = 8.0
"""A daemon that is well answers in milliseconds; one that compacts a large memory on a slow card, in seconds."""


@click.command(short_help="Show how the running daemon is doing.")
@click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
@click.option("--json", "as_json", is_flag=True, help="Print everything the daemon says, as JSON.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until Ctrl-C.")
def command(config: Path | None, *, as_json: bool, watch: bool) -> None:
    """Show link, queue, airtime, memory and model of the running daemon; exit 3 when none runs."""
    from meshai.config.loader import load_settings
    from meshai.ops import paths

    loaded = load_settings(config, os.environ)
    database = paths.find_database(loaded.settings.storage.database, loaded.source, os.environ)
    if watch:
        from meshai.cli.watch import watch as keep_watching

        keep_watching(
            lambda: ask(database), (lambda facts: json.dumps(facts, ensure_ascii=False)) if as_json else render
        )
        return
    facts = ask(database)
    click.echo(json.dumps(facts, indent=2, ensure_ascii=False) if as_json else render(facts))


def ask(database: Path) -> dict[str, Any]:
    """What the daemon of this database says of itself. Raises MissingError when none runs, or it does not answer."""
    from meshai.errors import MissingError
    from meshai.ops import control, lock, paths

    socket = paths.find_control_socket(database, os.environ)
    if socket is None or not control.is_answered(socket):
        held = lock.is_held(paths.lock_path(database))
        if held is None:
            raise MissingError(f"no permission to see whether a daemon uses {database}: try again with sudo")
        if held:
            raise MissingError(f"the daemon for {database} is starting or stopping: try again in a moment")
        raise MissingError(f"no daemon is running for {database}: start it with: meshai run")
    facts: dict[str, Any] = control.call(socket, "status", timeout_s=TIMEOUT_S)
    return facts


def render(facts: Mapping[str, Any]) -> str:
    """The facts as a person wants to read them."""
    from meshai.ops.humanize import duration

    link, node, airtime = facts["link"], facts["node"], facts["airtime"]
    queue, memory, model = facts["queue"], facts["memory"], facts["model"]
    rows = [
        ("MeshAI", f"{facts['version']}, up {duration(facts['uptime_s'])}, process {facts['pid']}"),
        ("link", f"{link['state']} ({link['device']})" + (f": {link['reason']}" if link.get("reason") else "")),
        ("node", f"{node['id']} {node['name']}, {node['region']} {node['preset']}" if node else "not seen yet"),
        ("questions", f"{queue['in_progress']} being answered, {queue['waiting']} waiting"),
        *_packets(facts["delivery"]),
        ("airtime", _airtime(airtime, facts["delivery"].get("airtime", {}).get("today"))),
        ("memory", f"{memory['messages']} messages of {memory['conversations']} people, {memory['strategy']}"),
        ("model", model.get("label", "")),
    ]
    rows += [(f"  {endpoint['name']}", _endpoint(endpoint)) for endpoint in model.get("endpoints", [])]
    rows.append(("tokens", _tokens(facts["tokens"])))
    rows += [("problem", text) for text in _problems(facts)]
    lines = [f"{name:<10} {text}" for name, text in rows]
    return "\n".join(lines + _nodes(facts["nodes"]))


def _packets(delivery: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "queued" not in delivery:
        return []
    return [("packets", f"{delivery['queued']} queued, {delivery['in_flight']} on the air, {delivery['held']} held")]


def _airtime(airtime: Mapping[str, Any], today: Mapping[str, Any] | None) -> str:
    used = airtime["used_percent"]
    channel = airtime.get("channel_utilization_percent")
    seen = f"; channel {channel:.1f} % busy" if channel is not None else ""
    day = f"; today {today['airtime_ms'] / 1000:.1f} s in {today['packets']} packets" if today else ""
    return f"{used:.2f} % of the last hour, budget {airtime['budget_percent']:g} %{day}{seen}"


def _tokens(ledger: list[Mapping[str, Any]]) -> str:
    total = sum(row["prompt_tokens"] + row["completion_tokens"] for row in ledger)
    return f"{total} today in {sum(row['calls'] for row in ledger)} calls, for {len(ledger)} node(s)"


def _endpoint(endpoint: Mapping[str, Any]) -> str:
    from meshai.ops.humanize import duration

    resting = endpoint["state"] != "ready"
    state = f"rests {duration(endpoint['rest_s'])} ({endpoint['last_error']})" if resting else "ready"
    tokens = endpoint["prompt_tokens"] + endpoint["completion_tokens"]
    known = endpoint["context_tokens"]
    context = f"context {known} tokens ({endpoint['context_source']})" if known else "context not known yet"
    parts = [
        state,
        f"{endpoint['model']} at {endpoint['base_url']}",
        context,
        f"{endpoint['calls']} calls, {tokens} tokens ({endpoint['cached_tokens']} from the cache)",
        f"{endpoint['failures']} failures in a row" if endpoint["failures"] else "",
        f"last error: {endpoint['last_error']}" if endpoint["last_error"] and not resting else "",
        "outside this house" if endpoint["leaves_house"] else "",
    ]
    return printable("; ".join(part for part in parts if part))


def _problems(facts: Mapping[str, Any]) -> list[str]:
    problems = [str(problem) for problem in facts["problems"] + facts["delivery"].get("problems", [])]
    if facts.get("unwell"):
        problems.append(facts["unwell"])
    alarmed = [node["node_id"] for node in facts["nodes"] if node["key_alarm_at"]]
    return problems + [f"{node_id} may have a new key, see the log" for node_id in alarmed]


def _nodes(nodes: list[Mapping[str, Any]]) -> list[str]:
    if not nodes:
        return []
    lines = ["", f"{'node':<10} {'name':<20} {'parts delivered':<16} {'relayed':<8} {'failed':<7} without PKI"]
    lines += [
        f"{node['node_id']:<10} {printable(node['long_name'])[:20]:<20} "
        f"{node['parts_delivered']}/{node['parts_sent']:<14} {node['parts_relayed']:<8} {node['parts_failed']:<7} "
        f"{node['ignored_no_pki']}"
        for node in nodes[:20]
    ]
    return lines
