"""``meshai setup``: asks what it must and writes a configuration."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click


@click.command(short_help="Set up node, model and configuration; become its admin.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The configuration to write or to change.")
@click.option("--port", metavar="PORT", help="The node's serial port, or auto.")
@click.option("--host", metavar="HOST[:PORT]", help="The node on the network.")
@click.option("--model-url", metavar="URL", help="An OpenAI-compatible server, or none.")
@click.option("--model", metavar="NAME", help="The model there.")
@click.option("--api-key-file", type=click.Path(path_type=Path), help="A file that holds only the server's key.")
@click.option("--owner", metavar="NAME", help="Whose bot it is, shown by !about.")
@click.option("--allow", metavar="NODES", help='Who may talk to it: "!a1b2c3d4,!0a11ce03", or everyone.')
@click.option("--no-pki", is_flag=True, help="With a node in ham mode: answer without the protection of keys.")
@click.option("--no-check", is_flag=True, help="Write without asking the node and the model.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the first message.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: flags, the file so far and defaults decide.")
def command(**given: object) -> None:
    """Find the node and a model, write the configuration, and wait for the first message.

    A configuration that exists keeps its comments and every value that is not asked for. Without a terminal give
    --yes and what differs from the defaults. Ctrl-C at any point leaves nothing half-written.
    """
    from meshai.errors import UsageError
    from meshai.setup.existing import Options
    from meshai.setup.wizard import Wizard

    logging.getLogger().addHandler(logging.NullHandler())  # the link's own log lines: each failure is told anyhow
    options = Options(**given)  # type: ignore[arg-type] # click's names are the fields' names
    try:
        wants_service = Wizard(options).run()
    except click.Abort:
        if not options.yes and not sys.stdin.isatty():
            raise UsageError("there is no terminal to answer the questions: give --yes and flags, see --help") from None
        raise
    if wants_service:
        from meshai.cli.service import command as service

        service.main(["install"], standalone_mode=False)
