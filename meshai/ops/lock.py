"""One daemon per database: an flock on a side file (DESIGN §4.4). The kernel releases it however we end."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from meshai.errors import AlreadyRunningError, MissingError


class DatabaseLock:
    """Held from ``acquire`` to ``release``, or as a context manager. The file stays: deleting it would be a race."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock or raise AlreadyRunningError at once, naming the holder; MissingError if there is no file."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MissingError(f"cannot open {self.path}: {error.strerror or 'error'}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise AlreadyRunningError(f"another MeshAI{holder} uses this database ({self.path})") from None
        except OSError as error:
            os.close(descriptor)
            raise MissingError(f"cannot lock {self.path}: {error.strerror or 'error'}") from None
        self._descriptor = descriptor
        _give_to_owner_of(self.path.parent, descriptor)
        with contextlib.suppress(OSError):  # the pid is a courtesy; a full disk must not keep the daemon down
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Give it back; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(path: Path) -> bool | None:
    """Whether a daemon runs on this database; None when that cannot be seen from here. Takes nothing."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _give_to_owner_of(directory: Path, descriptor: int) -> None:
    """A lock that root's subcommands made must not shut out the daemon, which is not root."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            owner = directory.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return f" (process {text})" if text.isdecimal() else ""
