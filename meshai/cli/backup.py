"""``meshai backup``: a consistent copy of the database while the daemon runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from meshai.storage.backup import Facts

CONFIG = click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")


@click.command(short_help="Copy the database, also while the daemon runs.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@CONFIG
def command(file: Path, config: Path | None, *, force: bool) -> None:
    """Write a consistent copy of the database to FILE (mode 0600) and check it, also while the daemon runs.

    It holds what people wrote: keep it as you keep the original. Bring it back with: meshai restore FILE
    """
    from meshai.errors import UsageError
    from meshai.storage import backup

    database = database_of(config)
    if file.is_dir():
        raise UsageError(f"{file} is a directory: name a file in it")
    if os.path.realpath(file) == os.path.realpath(database):
        raise UsageError(f"{file} is the database itself: name another file")
    facts = backup.copy(database, file, overwrite=force)
    click.echo(f"{file}: {described(facts)}; checked")


def database_of(config: Path | None) -> Path:
    """The database of the running daemon if one answers, else the configuration's."""
    from meshai.config.loader import load_settings
    from meshai.errors import MissingError
    from meshai.ops import control, paths

    loaded = load_settings(config, os.environ)
    database = paths.find_database(loaded.settings.storage.database, loaded.source, os.environ)
    socket = paths.find_control_socket(database, os.environ)
    if socket is None or loaded.settings.storage.database:
        return database
    try:
        return Path(str(control.call(socket, "status", timeout_s=5.0).get("database") or database))
    except MissingError:  # it hangs, or is none of ours: a copy is wanted all the more
        return database


def described(facts: Facts) -> str:
    """What is in a database, in a few words."""
    people = facts.rows.get("conversations", 0)
    return f"{facts.messages} messages of {people} conversations, {facts.bytes / 1e6:.1f} MB"
