"""``meshai simulate``: the virtual mesh as a server, for ``meshai run`` and the stock ``meshtastic`` command line."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Awaitable

import click

HOST = "127.0.0.1"


@click.command(short_help="Serve a virtual mesh on two TCP ports.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=4403, show_default=True, help="The bot's node listens here."
)
@click.option("--phone-port", type=click.IntRange(1, 65535), default=4404, show_default=True, help="The phone's node.")
@click.option(
    "--speed", type=click.FloatRange(0.1, 100), default=1.0, show_default=True, help="Times faster than a real mesh."
)
@click.option("--relay", is_flag=True, help="Put a relay between the two nodes: its repeating is an implicit ACK.")
def command(port: int, phone_port: int, speed: float, *, relay: bool) -> None:
    """Serve the bot's node on one TCP port of this computer and a phone's node on another, until Ctrl-C or SIGTERM."""
    from meshai.errors import UsageError

    if port == phone_port:
        raise UsageError(f"--port and --phone-port are the same ({port}); each node needs its own")
    asyncio.run(_serve(port, phone_port, speed, relay=relay))


async def _serve(port: int, phone_port: int, speed: float, *, relay: bool) -> None:
    from meshai.radio.virtual import TcpPort, default_mesh

    virtual = default_mesh(speed=speed, host=HOST, port=port, phones=1, direct=not relay)
    phone = virtual.phones[0]
    if not relay:
        virtual.mesh.unlink(virtual.relay, phone.node)
    phone.close()  # what comes for it waits for the client of its port
    phone_side = TcpPort(phone.node, HOST, phone_port)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        await _listen(virtual.start(), port, "--port")
        await _listen(phone_side.start(), phone_port, "--phone-port")
        click.echo(_instructions(virtual.bot.id, phone.node.id, port, phone_port, speed, relay=relay))
        await ended.wait()
    finally:
        await phone_side.stop()
        await virtual.stop()


async def _listen(starting: Awaitable[None], port: int, option: str) -> None:
    from meshai.errors import MissingError

    try:
        await starting
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MissingError(f"port {port} is in use by another program; choose one with {option}") from None
        raise MissingError(f"cannot listen on port {port}: {error.strerror or 'error'}") from None


def _instructions(bot_id: str, phone_id: str, port: int, phone_port: int, speed: float, *, relay: bool) -> str:
    """What to type in two other terminals."""
    connection = f"MESHAI_CONNECTION__TYPE=tcp MESHAI_CONNECTION__TCP_HOST={HOST} MESHAI_CONNECTION__TCP_PORT={port}"
    if speed > 1:
        connection += f" MESHAI_REPLY__SPACING_S={2.5 / speed:g}"
    way = "only over a relay" if relay else "directly"
    return f"""\
A virtual mesh, {speed:g} times as fast as life; the two nodes hear each other {way}. Ctrl-C ends it.
  the bot's node   {bot_id}  {HOST}:{port}
  a phone's node   {phone_id}  {HOST}:{phone_port}

The daemon, in a second terminal (with your own configuration file: set connection.type to tcp, tcp_port to {port}):
  {connection} MESHAI_LLM__ENDPOINTS='[]' meshai run
Leave MESHAI_LLM__ENDPOINTS out to use the model of your configuration instead of the built-in offline answerer.

The phone, in a third one; the second command shows what has arrived:
  meshtastic --host {HOST}:{phone_port} --dest '{bot_id}' --sendtext 'Hello!' --ack
  meshtastic --host {HOST}:{phone_port} --listen"""
