"""A thread that may be given up. The library blocks where it likes; the program must be able to walk away."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from meshai.errors import RadioError

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]


class DaemonWorker:
    """Runs calls one after the other on one daemon thread; a call that never returns only costs that thread."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call. Cancelling the future before its turn leaves the call out."""
        future: Future[T] = Future()
        self._jobs.put((call, future))
        return future

    def stop(self) -> None:
        """End after the calls already queued; returns at once."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future = job
            if future.set_running_or_notify_cancel():
                _run(call, future)


def _run(call: Callable[[], Any], future: Future[Any]) -> None:
    try:
        result = call()
    except SystemExit as error:  # our_exit() inside the library (protocol.md §5.4)
        future.set_exception(RadioError(f"the library gave up ({error})"))
    except Exception as error:  # noqa: BLE001 - it is handed to whoever waits
        future.set_exception(error)
    else:
        future.set_result(result)
