"""The meshtastic library as it must be: its version, the private members we lean on, and its noise kept down.

``check()`` runs before a link is opened. A library that changed under us is refused with one sentence
instead of failing hours later on a thread nobody watches.
"""

from __future__ import annotations

import importlib
import logging
from importlib import metadata
from types import CodeType

from meshai.errors import UnsupportedLibraryError

log = logging.getLogger(__name__)

MIN_VERSION = (2, 7, 11)
"""First supported release: a failed handshake closes its own thread, ``_generatePacketId`` is the current one."""
BEFORE_VERSION = (2, 8)
"""First release not supported until somebody has read its diff."""
SUPPORTED = ">=2.7.11,<2.8"
"""The same range as text, equal to the one in pyproject.toml (a test compares)."""

_MEMBERS: dict[str, tuple[str, ...]] = {
    "meshtastic.mesh_interface:MeshInterface": (
        "_disconnected",
        "_getOrCreateByNum",
        "_handleFromRadio",
        "_handlePacketFromRadio",
        "_handleQueueStatusFromRadio",
        "_sendPacket",
        "_sendToRadio",
        "_sendToRadioImpl",
        "_startConfig",
        "_startHeartbeat",
        "_waitConnected",
        "sendHeartbeat",
        "waitForConfig",
    ),
    "meshtastic.stream_interface:StreamInterface": ("_disconnected", "_readBytes", "_writeBytes", "close"),
    "meshtastic.tcp_interface:TCPInterface": ("_reconnect", "close", "connect", "myConnect"),
    "meshtastic.serial_interface:SerialInterface": ("_set_hupcl_with_termios", "connect"),
    "meshtastic.node:Node": ("_sendAdmin", "ensureSessionKey", "removeNode", "setFavorite", "setTime"),
}
"""Methods we call or override, per class."""

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "meshtastic.mesh_interface:MeshInterface": (
        "failure",
        "isConnected",
        "localNode",
        "metadata",
        "myInfo",
        "nodesByNum",
        "queueStatus",
    ),
    "meshtastic.stream_interface:StreamInterface": ("_rxThread", "_wantExit", "stream"),
    "meshtastic.tcp_interface:TCPInterface": ("hostname", "portNumber", "socket"),
    "meshtastic.serial_interface:SerialInterface": ("devPath",),
}
"""Attributes we read or set; they exist only on instances, so the constructor's code is asked."""

_QUOTING = ("meshtastic.mesh_interface", "meshtastic.stream_interface", "meshtastic.tcp_interface")
"""Their error lines quote whole frames (keys, messages) or repeat at every reconnect what we report once."""

_PRINTING = ("meshtastic.mesh_interface", "meshtastic.node", "meshtastic.util", "meshtastic.serial_interface")
"""Modules that print to standard output, which belongs to the program (protocol.md §5.4)."""


def check(version: str | None = None) -> str:
    """The library's version if it is one we support; raises UnsupportedLibraryError naming the range."""
    found = _installed() if version is None else version
    if not MIN_VERSION <= _numbers(found) < BEFORE_VERSION:
        raise UnsupportedLibraryError(f"meshtastic {found} is not supported: {_advice()}")
    missing = missing_members()
    if missing:
        raise UnsupportedLibraryError(f"meshtastic {found} lacks {', '.join(missing)}: {_advice()}")
    return found


def missing_members() -> list[str]:
    """Members we rely on that the installed library does not have, as ``Class.member``."""
    missing = []
    for place, names in _MEMBERS.items():
        cls = _class(place)
        missing += [f"{place.partition(':')[2]}.{name}" for name in names if not hasattr(cls, name)]
    for place, names in _ATTRIBUTES.items():
        code = getattr(getattr(_class(place), "__init__", None), "__code__", None)
        known = code.co_names if isinstance(code, CodeType) else ()
        missing += [f"{place.partition(':')[2]}.{name}" for name in names if name not in known]
    return missing


def keep_quiet() -> None:
    """Hold the library's loggers and prints down; called before every connection, so nobody's debug level undoes it.

    At DEBUG the library logs every frame, the node's private key included (protocol.md §5.4).
    """
    library_log = logging.getLogger("meshtastic")
    library_log.setLevel(max(library_log.level, logging.WARNING))
    library_log.addFilter(_only_critical)  # on this logger itself: one error per text that is not UTF-8
    for name in _QUOTING:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for name in _PRINTING:
        vars(importlib.import_module(name))["print"] = _swallow_print


def _only_critical(record: logging.LogRecord) -> bool:
    """What strangers send must not write errors into the operator's log."""
    return record.levelno >= logging.CRITICAL


def _swallow_print(*parts: object, **_options: object) -> None:
    """Stands in for ``print`` inside the library; the text may quote packets, so only its length is kept."""
    log.debug("the library printed %d characters, left out", sum(len(str(part)) for part in parts))


def _installed() -> str:
    try:
        return metadata.version("meshtastic")
    except metadata.PackageNotFoundError:
        raise UnsupportedLibraryError(f"the meshtastic library is not installed: {_advice()}") from None


def _advice() -> str:
    return f"MeshAI needs meshtastic {SUPPORTED} (pip install 'meshtastic{SUPPORTED}')"


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _class(place: str) -> object:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
