"""The step that finds and reads the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from meshai.clock import Clock
from meshai.config.model import Connection
from meshai.errors import MeshAIError, MissingError, RadioError, UsageError
from meshai.ops import control
from meshai.ops.node_advice import node_problems
from meshai.radio.link import NodeInfo
from meshai.setup import node as nodes
from meshai.setup.answers import Answers, host
from meshai.setup.console import Console, printable
from meshai.setup.existing import Existing, Options

HAM = (
    "This node is in ham mode (licensed): the law forbids it to encrypt, so it neither sends nor accepts direct\n"
    "  messages protected by a key. The bot answers it only with access.require_pki: false. Then everybody can read\n"
    "  along, and a sender is believed by its number alone, which anybody can forge: memory is kept by number, and\n"
    "  nobody can be an admin over the air. The other way is to switch ham mode off on the node."
)
AUTO, NETWORK, LATER = "the one node on USB, found anew at each start", "a node on the network", "look again"


class NodeStep:
    """Fills the connection into ``answers``; ``node`` and ``over_daemon`` tell what was found."""

    def __init__(self, console: Console, options: Options, existing: Existing, answers: Answers, clock: Clock) -> None:
        self._console = console
        self._options = options
        self._existing = existing
        self._answers = answers
        self._clock = clock
        self.connection: Connection = existing.settings.connection
        self.node: NodeInfo | None = None
        self.over_daemon = False

    def run(self) -> None:
        """Ask until a node was read. Without questions: raises MissingError with the reason."""
        self._console.head("The node")
        if self._options.no_check:
            self._from_options()
            self._console.say("  not looked at (--no-check)")
            return
        if not self._asks_daemon():
            if self._options.port is not None or self._options.host is not None or not self._console.asks:
                self._from_options()
            else:
                self._ask()
            while not self._read():
                self._ask()
        self._show()

    def _from_options(self) -> None:
        if self._options.host is not None:
            self._use(tcp=host(self._options.host))
        elif self._options.port is not None:
            self._use(serial_port=self._options.port)

    def _use(self, *, serial_port: str = "", tcp: tuple[str, int] | None = None) -> None:
        self._answers.tcp = tcp
        self._answers.serial_port = None if tcp is not None else serial_port
        self.connection = nodes.connection_for(serial_port=serial_port, tcp=tcp)

    def _asks_daemon(self) -> bool:
        """A running daemon has the port: it tells, nothing is taken away from it."""
        socket = self._existing.daemon
        if socket is None:
            return False
        if self._options.port is not None or self._options.host is not None:
            self._from_options()
            if self.connection != self._existing.settings.connection:
                return False  # another node than the daemon's
            self._keep()
        try:
            node = nodes.from_daemon(control.call(socket, "node.show"))
        except MeshAIError as error:
            raise MissingError(
                f"a daemon is running with this configuration, but: {error}. Stop it, then try again"
            ) from None
        self._console.say("  A daemon is running with this configuration; it keeps its node, and tells about it:")
        self.node, self.over_daemon = node, True
        return True

    def _ask(self) -> None:
        console = self._console
        while True:
            found = nodes.on_usb()
            console.say(
                f"  {len(found)} on USB:" if found else "  Nothing on USB. Is the cable one for data, is the node on?"
            )
            keep = [(f"as in the file: {_place(self._existing.settings.connection)}", self._keep)]
            options: list[tuple[str, Callable[[], None]]] = [] if self._existing.is_new else keep
            options += [
                (f"{each.port} ({each.label})", lambda port=each.port: self._use(serial_port=port))  # type: ignore[misc]
                for each in found
            ]
            if len(found) == 1:
                options.append((AUTO, lambda: self._use(serial_port="auto")))
            options.append((NETWORK, self._ask_host))
            options.append((LATER, lambda: None))
            picked = console.choose("Which one", [label for label, _ in options])
            options[picked][1]()
            if options[picked][0] != LATER:
                return

    def _keep(self) -> None:
        self._answers.tcp = self._answers.serial_port = None
        self.connection = self._existing.settings.connection

    def _ask_host(self) -> None:
        console = self._console
        console.say("  A node serves one TCP client at a time: no phone may be connected to it over Wi-Fi.")
        self._use(tcp=console.ask("Its name or address", host, "meshtastic.local"))

    def _read(self) -> bool:
        place = _place(self.connection)
        self._console.say(f"  Asking the node ({place}), some seconds ...")
        try:
            self.node = asyncio.run(nodes.read(self.connection, self._clock))
        except RadioError as error:
            if not self._console.asks:
                raise MissingError(f"the node ({place}) cannot be read: {error}. Nothing was written") from None
            self._console.warn(f"That did not work: {error}")
            return False
        return True

    def _show(self) -> None:
        assert self.node is not None
        for name, text in nodes.describe(self.node):
            self._console.say(f"  {name:<6} {printable(text)}")
        if self.node.licensed and self._existing.settings.access.require_pki:
            self._ham()
        settings = self._existing.settings
        if self.node.licensed:
            settings = settings.model_copy(update={"access": settings.access.model_copy(update={"require_pki": False})})
        for problem in node_problems(self.node, settings):
            self._console.warn(problem)

    def _ham(self) -> None:
        self._console.warn(HAM)
        if self._options.no_pki or (
            self._console.asks and self._console.confirm("Answer without that protection", default=False)
        ):
            self._answers.require_pki = False
        else:
            self._console.say("  access.require_pki stays true: nobody is answered while the node is in ham mode.")


def check(options: Options) -> None:
    """Raises UsageError for flags that do not go together."""
    if options.port is not None and options.host is not None:
        raise UsageError("--port is for USB, --host for the network: give one of them")
    if options.port is not None and not options.port.strip():
        raise UsageError("--port wants a path such as /dev/serial/by-id/..., or auto")
    if options.host is not None:
        host(options.host)


def _place(connection: Connection) -> str:
    if connection.type == "tcp":
        return f"{connection.tcp_host}:{connection.tcp_port}"
    return connection.ble_address if connection.type == "ble" else connection.serial_port
