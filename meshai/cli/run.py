"""``meshai run``: the daemon, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import click


@click.command(short_help="Run the daemon in the foreground.")
@click.option("-c", "--config", type=click.Path(path_type=Path, readable=False), help="The configuration file.")
def command(config: Path | None) -> None:
    """Run the daemon in the foreground; SIGTERM and Ctrl-C stop it cleanly, SIGHUP reloads the configuration."""
    from meshai.config.loader import load_settings
    from meshai.llm.keys import keys_for
    from meshai.ops import log as logs
    from meshai.service import Service

    loaded = load_settings(config, os.environ)
    settings = loaded.settings
    hidden = [*keys_for(settings.llm.endpoints, os.environ), settings.web.token]
    secrets = [secret.get_secret_value() for secret in hidden]
    logs.setup(settings.log.level, secrets=secrets)
    if settings.log.file:
        logs.to_file(Path(settings.log.file).expanduser(), secrets=secrets)
    for warning in loaded.warnings:
        logging.getLogger("meshai").warning("%s", warning)

    async def serve() -> int:
        return await Service(loaded, config_path=config).run()

    sys.exit(asyncio.run(serve()))
