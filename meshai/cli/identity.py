"""``meshai identity list|accept``: the keys of the nodes."""

from __future__ import annotations

import time
from pathlib import Path

import click

CONFIG = click.option("-c", "--config", type=click.Path(path_type=Path), help="The configuration file.")


@click.group(short_help="Show the keys of the nodes; accept a changed one.")
def command() -> None:
    """Show the keys of the nodes, and join a changed key to its node's conversation."""


@command.command("list")
@CONFIG
def list_keys(config: Path | None) -> None:
    """Show every key each node has used, by fingerprint."""
    from meshai.cli.ask import ask

    rows = ask(config, "identity.list")
    if not rows:
        click.echo("No node has shown a key yet.")
        return
    click.echo(f"{'node':<10} {'key':<9} {'standing':<9} first seen")
    for row in rows:
        seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["first_seen"]))
        accepted = " (accepted by you)" if row["accepted_at"] else ""
        click.echo(f"{row['node_id']:<10} {row['fingerprint']:<9} {row['standing']:<9} {seen}{accepted}")


@command.command()
@click.argument("node")
@click.argument("fingerprint", default="")
@CONFIG
def accept(node: str, fingerprint: str, config: Path | None) -> None:
    """Join NODE's new key to its conversation; the old key is revoked.

    Do this only after its owner told you, not over the mesh, that the node was reset. Give the FINGERPRINT when
    several keys wait.
    """
    from meshai.cli.ask import ask

    done = ask(config, "identity.accept", {"node": node, "fingerprint": fingerprint})
    if not done["fingerprint"]:
        click.echo(
            f"{done['node_id']}: the radio forgets its old key. The key it shows within the next 30 minutes replaces "
            f"key {done['replaced']}; compare it then: meshai identity list"
        )
        return
    click.echo(f"{done['node_id']}: key {done['fingerprint']} accepted, key {done['replaced'] or '(none)'} revoked.")
