"""``meshai chat``: the demo's mesh with you as the phone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from meshai.config.model import Endpoint
    from meshai.demo.stage import Stage
    from meshai.demo.talk import Talk


@click.command(short_help="Be the phone yourself, on a virtual mesh.")
@click.option("--llm", "url", metavar="URL", help="An OpenAI-compatible server, like http://127.0.0.1:11434/v1.")
@click.option("--model", metavar="NAME", help="The model there. A key is taken from LLM_API_KEY.")
@click.option(
    "--speed", type=click.FloatRange(1, 60), default=10.0, show_default=True, help="Times faster than a real mesh."
)
@click.option("-v", "--verbose", is_flag=True, help="Show the daemon's log, too.")
def command(url: str | None, model: str | None, speed: float, *, verbose: bool) -> None:
    """Talk to the real daemon over a virtual mesh. Without --llm the built-in offline answerer speaks.

    Lines may come from a pipe as well. Nothing is kept: the database is deleted at the end.
    """
    from meshai.demo.host import host
    from meshai.demo.stage import Stage

    endpoints = _endpoints(url, model)

    async def play(directory: Path) -> None:
        async with Stage(directory, speed=speed, endpoints=endpoints) as stage:
            stage.spare_last_hops()
            await stage.start_bot()
            if sys.stdin.isatty() and sys.stdout.isatty():
                await _with_terminal(stage)
            else:
                await _with_pipe(stage)
            await stage.stop_bot()

    host(play, verbose=verbose)


def _endpoints(url: str | None, model: str | None) -> list[Endpoint]:
    from pydantic import ValidationError

    from meshai.config.model import Endpoint
    from meshai.errors import UsageError

    if not url and not model:
        return []
    if not url or not model:
        raise UsageError("--llm and --model belong together: --llm http://127.0.0.1:11434/v1 --model llama3.2")
    try:
        return [Endpoint(name="chat", base_url=url, model=model)]
    except ValidationError:
        raise UsageError("--llm is an address like http://127.0.0.1:11434/v1") from None


async def _with_pipe(stage: Stage) -> None:
    """One line after the other: the next is sent when the answer to the one before is complete."""
    from meshai.demo.printer import Printer
    from meshai.demo.talk import lines

    printer = Printer.on(sys.stdout, os.environ)
    talk = _talk(stage, printer)
    async for line in lines(sys.stdin.fileno()):
        if text := line.strip():
            printer.said(stage.phones[0].node.timeline.now(), "You", text, is_bot=False)
            await talk.settle(await talk.send(text))


async def _with_terminal(stage: Stage) -> None:
    """A prompt with history; what comes from the mesh appears above it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.patch_stdout import patch_stdout

    from meshai.demo.printer import Printer, wants_colour

    colour, encoding = wants_colour(sys.stdout, os.environ), sys.stdout.encoding or "utf-8"
    width = shutil.get_terminal_size().columns
    session: PromptSession[str] = PromptSession("you> ")
    with patch_stdout(raw=True):  # the printer's own colours; foreign text is cleaned before it gets there
        talk = _talk(stage, Printer(click.echo, colour=colour, encoding=encoding, width=min(100, width)))
        answers: set[asyncio.Task[None]] = set()
        while True:
            line = await stage.while_running(_prompt(session))
            if line is None:
                break
            if text := line.strip():
                task = asyncio.create_task(talk.settle(await talk.send(text)))
                answers.add(task)
                task.add_done_callback(answers.discard)
        for task in list(answers):
            task.cancel()
        await asyncio.gather(*answers, return_exceptions=True)


async def _prompt(session: PromptSession[str]) -> str | None:
    """A line; an empty one after Ctrl-C, None after Ctrl-D: a KeyboardInterrupt that left a task would end the loop."""
    try:
        return await session.prompt_async(handle_sigint=False)
    except KeyboardInterrupt:
        return ""
    except EOFError:
        return None


def _talk(stage: Stage, printer: object) -> Talk:
    from meshai.demo.printer import Printer
    from meshai.demo.talk import HELP, Talk

    assert isinstance(printer, Printer)
    phone = stage.phones[0]
    printer.line(f"You are {phone.node.settings.long_name} ({phone.node.id}) on a virtual mesh, {stage.speed:g} times "
                 f"faster than life; a relay stands between you and MeshAI. {HELP}")  # fmt: skip
    return Talk(stage, phone, printer)
