"""``meshai identity list|accept|show``: the keys of the nodes, and the bot's own contact."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from meshai.radio.link import NodeInfo

CONFIG = click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")


@click.group(short_help="Show the keys of the nodes; accept a changed one.")
def command() -> None:
    """Show the keys of the nodes, join a changed key to its node's conversation, show the bot's own contact."""


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


@command.command("show")
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print node, key and link as JSON.")
def show(config: Path | None, *, as_json: bool) -> None:
    """Show the bot's own node as a contact: its link and QR code, for the Meshtastic app of whoever wants to talk.

    A running daemon is asked; without one the node is read for a moment.
    """
    import json

    from meshai.setup.console import Console
    from meshai.setup.own_node import own_node
    from meshai.setup.wizard import show_contact

    node = own_node(config)
    if as_json:
        click.echo(json.dumps(contact_facts(node), indent=2, ensure_ascii=False))
        return
    show_contact(Console(asks=False), node)


def contact_facts(node: NodeInfo) -> dict[str, object]:
    """The own node for other programs."""
    from meshai.identity import fingerprint
    from meshai.radio.contact import contact_url

    key = node.public_key
    return {
        "node_id": node.id,
        "long_name": node.long_name,
        "short_name": node.short_name,
        "public_key": base64.b64encode(key).decode("ascii") if key else "",
        "fingerprint": fingerprint(key) if key else "",
        "url": contact_url(node),
    }
