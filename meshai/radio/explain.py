"""Why a connection failed, in words that name the remedy. No varying numbers: the log is throttled by this text."""

from __future__ import annotations

import errno
import re
import socket

from meshai.errors import MeshAIError

HELD = "the port is held by another program (meshtastic command line, gpsd, ModemManager, a second bot)"
NO_PERMISSION = (
    "no permission to open the port: add this user to the group dialout "
    "(sudo usermod -aG dialout USER, then log in again) or set SupplementaryGroups=dialout in the service"
)
GONE = "the port is not there (node unplugged or rebooting)"
REFUSED = "nothing listens there (node off, rebooting, or another port)"

_QUOTED_ERRNO = re.compile(r"\((\d{1,3}), '")
_BY_ERRNO = {
    errno.ENOENT: GONE,
    errno.ENODEV: GONE,
    errno.ENXIO: GONE,
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.EAGAIN: HELD,
    errno.EBUSY: HELD,
    errno.ECONNREFUSED: REFUSED,
    errno.ENOTTY: "that is not a serial port",
    errno.EISDIR: "that is not a serial port",
    errno.EHOSTUNREACH: "the host cannot be reached (node off, or another network)",
    errno.ENETUNREACH: "the network cannot be reached",
    errno.ECONNRESET: "the node reset the connection",
    errno.EPIPE: "the node closed the connection",
    errno.EIO: "the device went away (unplugged, rebooting, or short of power)",
    errno.ETIMEDOUT: "the node stopped answering",
}


def explain(error: BaseException) -> str:
    """One sentence for the log and ``status``."""
    if isinstance(error, MeshAIError):
        return str(error)
    if isinstance(error, socket.gaierror):
        return "the host name is unknown (or there is no name service)"
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        quoted = _QUOTED_ERRNO.search(text)  # pyserial puts some system errors into its text only
        number = error.errno if error.errno is not None else int(quoted[1]) if quoted else 0
        if number in _BY_ERRNO:
            return _BY_ERRNO[number]
    if isinstance(error, TimeoutError):
        return "no answer to the connection attempt"
    if type(error) is ConnectionError and text:
        return text  # our own words
    if "readiness to read but returned no data" in text:
        return "the device went away, or two programs read from it"
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__
