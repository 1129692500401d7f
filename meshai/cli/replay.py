"""``meshai replay``: the exact prompt behind an answer."""

from __future__ import annotations

import json
from pathlib import Path

import click

from meshai.cli.text import printable


@click.command(short_help="Show the exact prompt behind an answer.")
@click.argument("node")
@click.option("--message", type=int, help="The answer's message id, as memory show --json tells; default: the newest.")
@click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
@click.option("--json", "as_json", is_flag=True, help="Print everything, as JSON.")
def command(node: str, message: int | None, config: Path | None, *, as_json: bool) -> None:
    """Show what exactly the model was sent for NODE's newest answer, and what that cost."""
    from meshai.cli.ask import ask

    calls = ask(config, "replay", {"node": node, "message": message})
    if as_json:
        click.echo(json.dumps(calls, indent=2, ensure_ascii=False))
        return
    for call in calls:
        click.echo(
            f"{call['model']} at {call['endpoint']}: {call['outcome']}, prompt {call['prompt_tokens']} tokens "
            f"(estimated {call['prompt_est']}, cached {call['cached_tokens']}), answer {call['completion_tokens']}, "
            f"{call['ms']} ms"
        )
        for part in call["prompt"]:
            click.echo(f"--- {part['role']}")
            for line in part["content"].splitlines():
                click.echo(printable(line))
