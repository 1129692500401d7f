"""``meshai config``: check a file, print the example."""

from __future__ import annotations

import os

import click


@click.group(name="config", short_help="Check a configuration file, or print the example.")
def command() -> None:
    """Check a configuration file, or print the example."""


@command.command(name="check", short_help="Tell every mistake of a file at once.")
@click.argument("file", required=False, type=click.Path())
def check(file: str | None) -> None:
    """Tell every mistake of FILE at once, as FILE:LINE:COL: key: what is wrong.

    Without FILE, checks the file that `meshai run` would use. Variables of the environment count as they do for `run`.
    """
    from meshai.config.loader import load_settings

    loaded = load_settings(file, os.environ)
    click.echo(f"{loaded.name}: ok")
    for name in loaded.overrides:
        click.echo(f"note: {name} of the environment is used")
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}")
    for note in loaded.notes:
        click.echo(f"note: {note}")


@command.command(name="example")
def example() -> None:
    """Print a commented configuration with every key and its default."""
    from meshai.config.example import example as text

    click.echo(text(), nl=False)
