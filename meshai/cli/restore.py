"""``meshai restore``: a copy becomes the database again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from meshai.cli.backup import CONFIG, described


@click.command(short_help="Use a copy of the database again.")
@click.argument("file", type=click.Path(path_type=Path))
@CONFIG
def command(file: Path, config: Path | None) -> None:
    """Check FILE, put the present database aside and use a copy of FILE in its place. The daemon must be stopped.

    Nothing is deleted: the present database stays beside the new one, and FILE is not changed.
    """
    from meshai.config.loader import load_settings
    from meshai.errors import AlreadyRunningError, MissingError
    from meshai.ops import paths
    from meshai.ops.lock import DatabaseLock
    from meshai.storage import restore

    loaded = load_settings(config, os.environ)
    database = paths.find_database(loaded.settings.storage.database, loaded.source, os.environ)
    paths.make_private_dir(database.parent)
    try:
        with DatabaseLock(paths.lock_path(database)):
            facts, aside = restore.restore(file, database, now=time.time())
    except AlreadyRunningError as error:
        raise MissingError(
            f"{error}. Stop it first: sudo systemctl stop meshai; and afterwards: sudo systemctl start meshai"
        ) from None
    click.echo(f"{database}: {described(facts)}, from {file}")
    if aside is not None:
        click.echo(f"the database before is kept as {aside}; when all is well: rm {aside}")
