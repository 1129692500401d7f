"""``meshai memory …``: the archive, per node."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from meshai.cli.text import printable

CONFIG = click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print everything, as JSON.")
NODE = click.argument("node")
ANY_NODE = click.argument("node", default="")


@click.group(short_help="Look into the archive, check it, repair it, take it along.")
def command() -> None:
    """Look into the archive, check it, repair it, take it along.

    NODE is a node id such as '!a1b2c3d4', or the key of one conversation such as 'ch:bot'.
    """


@command.command()
@ANY_NODE
@CONFIG
@JSON
def status(node: str, config: Path | None, *, as_json: bool) -> None:
    """Show the figures of every conversation, or of NODE's."""
    rows = _ask(config, "memory.status", {"node": node})
    if as_json:
        click.echo(_dump(rows))
        return
    click.echo(
        f"{'conversation':<24} {'memory':<7} {'messages':>8} {'raw':>5} {'summaries':>9} {'level':>5} {'facts':>5}"
    )
    for row in rows:
        on = "closed" if row["closed"] else "on" if row["enabled"] else "off"
        click.echo(
            f"{row['key']:<24} {on:<7} {row['messages']:>8} {row['since_last']:>5} {row['summaries']:>9} "
            f"{row['max_level']:>5} {row['facts']:>5}"
            + (f"  last failure: {printable(row['last_failure'])}" if row["last_failure"] else "")
        )


@command.command()
@NODE
@click.option("--limit", default=20, show_default=True, help="How many of the newest messages.")
@CONFIG
@JSON
def show(node: str, limit: int, config: Path | None, *, as_json: bool) -> None:
    """Show NODE's summaries, facts and newest messages."""
    facts = _ask(config, "memory.show", {"node": node, "limit": limit})
    if as_json:
        click.echo(_dump(facts))
        return
    click.echo(f"{facts['key']}, epoch {facts['epoch']}, word for word from message {facts['anchor_seq']}")
    if facts["others"]:
        click.echo(f"other conversations of this node: {', '.join(facts['others'])}")
    for summary in facts["summaries"]:
        click.echo(
            f"summary {summary['id']}: messages {summary['start_seq']}-{summary['end_seq']}, level {summary['level']}, "
            f"{summary['status']}, {summary['quality']}\n    {printable(summary['text'])}"
        )
    for number, fact in enumerate(facts["facts"], start=1):
        click.echo(f"fact {number}: {printable(fact['line'])}  (from: {printable(fact['quote'])})")
    for message in facts["messages"]:
        click.echo(f"{_time(message['created_at'])} {message['role']:<9} {printable(message['content'])}")


@command.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--node", default="", help="Only this node's conversations.")
@CONFIG
@JSON
def search(words: tuple[str, ...], node: str, config: Path | None, *, as_json: bool) -> None:
    """Search the messages for WORDS."""
    hits = _ask(config, "memory.search", {"words": " ".join(words), "node": node})
    if as_json:
        click.echo(_dump(hits))
        return
    for hit in hits:
        click.echo(f"{hit['key']} {_time(hit['date'])} {printable(hit['who'])}: {printable(hit['text'])}")
    if not hits:
        click.echo("Nothing found.")


@command.command()
@CONFIG
def verify(config: Path | None) -> None:
    """Check every promise of the memory on the real database; exit 1 when one is broken."""
    problems = _ask(config, "memory.verify", {})
    for problem in problems:
        click.echo(problem)
    if problems:
        click.echo(f"{len(problems)} problem(s). Summaries, facts and index can be made anew: meshai memory rebuild")
        sys.exit(1)
    click.echo("All is well: every message is in the raw window or under exactly one summary.")


@command.command()
@ANY_NODE
@CONFIG
def rebuild(node: str, config: Path | None) -> None:
    """Make summaries, facts and search index anew from the archive, for all or for NODE."""
    done = _ask(config, "memory.rebuild", {"node": node}, timeout_s=600.0, progress=_bar)
    if sys.stderr.isatty():
        click.echo("", err=True)
    click.echo(f"Rebuilt with {done['model_calls']} model calls.")


@command.command()
@NODE
@click.option("--summary", type=int, help="The summary's number, as memory show tells; default: the newest.")
@CONFIG
def rollback(node: str, summary: int | None, config: Path | None) -> None:
    """Take NODE's newest summary back; the messages under it are word for word again, or an older version holds."""
    done = _ask(config, "memory.rollback", {"node": node, "summary": summary})
    click.echo(f"{done['key']}: summary {done['id']} of messages {done['start_seq']}-{done['end_seq']} taken back.")


@command.command("export")
@ANY_NODE
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file to write, mode 0600; default: print.")
@CONFIG
def export_archive(node: str, output: Path | None, config: Path | None) -> None:
    """Write the archive, or NODE's part of it, as JSON."""
    from meshai.memory.archive import write_json

    data = _ask(config, "memory.export", {"node": node})
    if output is None:
        click.echo(_dump(data))
        return
    write_json(output, data)
    click.echo(f"Wrote {len(data['conversations'])} conversation(s) to {output}.")


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@CONFIG
def import_archive(file: Path, config: Path | None) -> None:
    """Take in FILE: an export, or the SQLite database of the original MeshAI.

    Conversations that have messages here already are left alone.
    """
    done = _ask(config, "memory.import", {"data": _read(file)})
    click.echo(
        f"Imported {done['conversations']} conversation(s), {done['messages']} messages, "
        f"{done['summaries']} summaries, {done['facts']} facts."
    )
    for key in done["skipped"]:
        click.echo(f"Left alone, it has messages here already: {key}")


@command.command()
@NODE
@click.option("--yes", is_flag=True, help="Do not ask.")
@CONFIG
def forget(node: str, config: Path | None, *, yes: bool) -> None:
    """Erase everything of NODE for good: messages, facts, summaries, prompts, index."""
    if not yes:
        click.confirm(f"Erase everything of {node} for good?", abort=True)
    done = _ask(config, "memory.forget", {"node": node})
    click.echo(f"Erased {done['messages']} messages of {', '.join(done['conversations'])}.")


def _ask(config: Path | None, name: str, args: dict[str, object], **more: Any) -> Any:  # noqa: ANN401 - JSON
    from meshai.cli.ask import ask

    return ask(config, name, args, **more)


def _bar(done: int, total: int, what: str) -> None:
    if sys.stderr.isatty():
        filled = int(30 * done / total) if total else 30
        click.echo(
            f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total} {printable(what)[:30]:<30}", nl=False, err=True
        )


def _dump(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _read(path: Path) -> object:
    from meshai.errors import UsageError
    from meshai.memory import archive

    try:
        with path.open("rb") as file:
            is_database = file.read(15) == b"SQLite format 3"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return archive.read_original(path) if is_database else archive.read_json(path)
