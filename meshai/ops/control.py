"""The control socket: how ``meshai status`` and every subcommand that writes talk to the running daemon.

One JSON object a line over a UNIX socket of mode 0660: ``{"call": NAME, "args": {…}}`` is answered with
``{"ok": true, "result": …}`` or ``{"ok": false, "error": "one sentence", "exit_code": N}``, and while it lasts with
``{"progress": [done, total, "what"]}``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from meshai.errors import CheckFailedError, MeshAIError, MissingError, UsageError

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 64 * 1024 * 1024  # an import comes in one line
MAX_ANSWER_BYTES = 64 * 1024 * 1024
IDLE_TIMEOUT_S = 30.0

Progress = Callable[[int, int, str], None]
Handler = Callable[[Mapping[str, Any], Progress], Awaitable[object]]


class ControlServer:
    """Answers calls on a socket file; runs on the daemon's loop."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. A socket file that a killed daemon left behind is replaced: the caller holds the database's lock."""
        if len(os.fsencode(self.path)) > 107:  # sun_path, unix(7)
            raise MissingError(f"the path of the control socket is too long: {self.path}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        listener = self._bind()
        self._server = await asyncio.start_unix_server(self._client, sock=listener, limit=MAX_REQUEST_BYTES)

    def _bind(self) -> socket.socket:
        """The socket file has its mode from the beginning; nothing else may run while the umask is narrow."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o117)
        try:
            listener.bind(os.fspath(self.path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(before)
        return listener

    async def stop(self) -> None:
        """Close the socket and remove its file."""
        if self._server is not None:
            self._server.close()
        for task in list(self._clients):
            task.cancel()
        self.path.unlink(missing_ok=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while True:
                async with asyncio.timeout(IDLE_TIMEOUT_S):
                    line = await reader.readline()
                if not line:
                    break

                def report(done: int, total: int, what: str) -> None:
                    _write(writer, {"progress": [done, total, what]})

                _write(writer, await self._answer(line, report))
                await writer.drain()
        except (ValueError, OSError, TimeoutError):  # an overlong line, a client that went away or says nothing
            pass
        except asyncio.CancelledError:  # by ``stop``; before 3.12 asyncio would log a cancelled client as an error
            pass
        finally:
            self._clients.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, line: bytes, report: Progress) -> dict[str, object]:
        try:
            request = json.loads(line)
            handler = self._handlers[request["call"]]
            args = request.get("args") or {}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"ok": False, "error": "the daemon does not know this call", "exit_code": UsageError.exit_code}
        try:
            return {"ok": True, "result": await handler(args, report)}
        except MeshAIError as error:
            return {"ok": False, "error": str(error), "exit_code": error.exit_code}
        except Exception:  # a bug in one handler must not end the daemon's control socket
            log.exception("control call %r failed", request["call"])
            return {"ok": False, "error": "the daemon failed on this call; see its log", "exit_code": 70}


def call(
    path: Path,
    name: str,
    args: Mapping[str, object] | None = None,
    *,
    timeout_s: float = 10.0,
    progress: Progress = lambda *_: None,
) -> Any:  # noqa: ANN401 - JSON
    """Ask the running daemon; blocking. ``timeout_s`` is for each line it says.

    Raises MissingError when none runs or it does not answer in time, else the daemon's own refusal.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(os.fspath(path))
            client.sendall(json.dumps({"call": name, "args": dict(args or {})}).encode() + b"\n")
            with client.makefile("rb") as lines:
                while "progress" in (answer := json.loads(_read_line(lines))):
                    progress(*answer["progress"])
    except (FileNotFoundError, ConnectionRefusedError):
        raise MissingError(f"no daemon is running here (no answer on {path}): start it with: meshai run") from None
    except PermissionError:
        raise MissingError(f"no permission for {path}: try again with sudo, or as the daemon's user") from None
    except TimeoutError:
        raise MissingError(f"the daemon did not answer within {timeout_s:g} s: it is starting or hangs") from None
    except (OSError, ValueError) as error:
        raise MissingError(f"the daemon's answer on {path} broke off: {error}") from None
    if answer.get("ok"):
        return answer.get("result")
    kinds = {UsageError.exit_code: UsageError, MissingError.exit_code: MissingError}
    raise kinds.get(answer.get("exit_code"), CheckFailedError)(answer.get("error", "the daemon refused"))


def is_answered(path: Path) -> bool:
    """Whether somebody listens on a socket file; one that a killed daemon left behind is answered by nobody."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(2.0)
            client.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:  # no permission, or busy: there is a daemon, let the call say what is wrong
        return True
    return True


def _write(writer: asyncio.StreamWriter, answer: Mapping[str, object]) -> None:
    writer.write(json.dumps(answer, default=_text).encode() + b"\n")


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _read_line(lines: BinaryIO) -> bytes:
    line = lines.readline(MAX_ANSWER_BYTES)
    if not line.endswith(b"\n"):
        raise ValueError("connection closed, or too long an answer")
    return line
