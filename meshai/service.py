"""The process around the daemon: lock, database, control socket, systemd, signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from meshai import __version__
from meshai.clock import Clock, SystemClock
from meshai.config.loader import Loaded, load_settings
from meshai.config.reload import compare
from meshai.daemon import Daemon
from meshai.errors import ConfigError, StorageError
from meshai.llm.base import CallRecord, Recalled
from meshai.operations.base import Report
from meshai.ops import log as logs
from meshai.ops import paths
from meshai.ops.control import ControlServer
from meshai.ops.copies import DailyCopies
from meshai.ops.lock import DatabaseLock
from meshai.ops.sd_notify import Notifier, feed_watchdog
from meshai.radio.link import LinkState, RadioLink
from meshai.storage import calls, tokens
from meshai.storage.database import Database, Transaction
from meshai.storage.recover import open_or_replace

log = logging.getLogger(__name__)

STATUS_EVERY_S = 10.0
EXIT_DONE, EXIT_LOST = 0, 1

OpenLink = Callable[[Clock], RadioLink]


class Service:
    """One run of ``meshai run``: ``await Service(loaded, …).run()`` returns the exit code."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        config_path: Path | None = None,
        env: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        open_link: OpenLink | None = None,
        signals: bool = True,
    ) -> None:
        """``open_link`` replaces the node of the configuration; without ``signals`` only ``end`` stops it."""
        self.loaded = loaded
        self.env = os.environ if env is None else env
        self.clock = clock or SystemClock()
        self._config_path = config_path
        self._open_link = open_link
        self._signals = signals
        self._ended = asyncio.Event()
        self._exit_code = EXIT_DONE
        self._ill = ""
        self._errors = logs.LastErrors()
        self._damage = ""
        self._writes: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()
        self.daemon: Daemon | None = None

    def end(self, exit_code: int = EXIT_DONE) -> None:
        """Stop cleanly; ``run`` returns soon after."""
        self._exit_code = exit_code
        self._ended.set()

    async def run(self) -> int:
        """Run until a signal, ``end``, or a link that only a new process can revive.

        Raises AlreadyRunningError, StorageError, MissingError, UsageError before anything was started.
        """
        settings = self.loaded.settings
        if settings.web.enabled:
            from meshai import web

            web.require()
        path = paths.database_path(settings.storage.database, self.env)
        paths.make_private_dir(path.parent)
        async with contextlib.AsyncExitStack() as stack:
            logging.getLogger().addHandler(self._errors)
            stack.callback(logging.getLogger().removeHandler, self._errors)
            stack.enter_context(DatabaseLock(paths.lock_path(path)))
            opened = await open_or_replace(path, now=self.clock.now())
            db, self._damage = opened.db, opened.note
            stack.push_async_callback(db.close)
            daemon = self._build(db)
            self.copies = DailyCopies(path, self.clock, keep=lambda: daemon.settings.storage.daily_copies)
            await self._serve(daemon, path, stack)
            await self._ended.wait()
        return self._exit_code

    def _build(self, db: Database) -> Daemon:
        settings = self.loaded.settings
        link = self._open_link(self.clock) if self._open_link else _configured_link(self.loaded, self.clock)
        record = partial(self._record, db)
        from meshai.llm.registry import open_model, open_summarizer

        async def recall(conv_id: int, question: str) -> list[Recalled]:
            if self.daemon is None:
                return []
            return await self.daemon.memory.recall(conv_id, question, people_only=True)

        model = open_model(settings, clock=self.clock, on_call=record, recall=recall)
        summarizer = open_summarizer(settings, model, clock=self.clock, on_call=record)
        self.daemon = Daemon(settings, db, link, model, summarizer=summarizer, clock=self.clock)
        return self.daemon

    async def _serve(self, daemon: Daemon, path: Path, stack: contextlib.AsyncExitStack) -> None:
        notifier = Notifier(self.env)
        await daemon.start()
        stack.push_async_callback(daemon.stop)
        control = ControlServer(paths.control_socket(path, self.env), {"status": self._status, **daemon.operations})
        await control.start()
        stack.push_async_callback(control.stop)
        await self._open_page(daemon, stack)
        self._listen_to_signals(stack)
        tasks = [
            asyncio.create_task(feed_watchdog(notifier, self._is_healthy, self.clock), name="watchdog"),
            asyncio.create_task(self._show_status(notifier, daemon), name="status line"),
            asyncio.create_task(self.copies.run(), name="daily copies"),
            asyncio.create_task(_warm_up(daemon), name="warm-up"),
        ]
        stack.push_async_callback(_cancel, tasks)
        stack.callback(notifier.stopping)
        notifier.ready(self._status_line(daemon))
        self.ready.set()
        log.info("MeshAI %s is up; %s; database %s", __version__, daemon.model.label, path)

    async def _open_page(self, daemon: Daemon, stack: contextlib.AsyncExitStack) -> None:
        settings = self.loaded.settings
        if not settings.web.enabled:
            return
        from meshai import web
        from meshai.llm.keys import keys_for

        keys = [*keys_for(settings.llm.endpoints, self.env), settings.web.token]
        secrets = [key.get_secret_value() for key in keys]
        page = web.page(daemon, settings.web, secrets=secrets, unwell=lambda: self._ill)
        await page.start()
        stack.push_async_callback(page.stop)

    def _record(self, db: Database, call: CallRecord) -> None:
        """Keep a model call's figures; a failure to keep them must not cost an answer."""

        async def write() -> None:
            try:
                await db.transaction(partial(self._book, call))
            except StorageError as error:
                log.warning("could not keep the figures of a model call: %s", error)

        task = asyncio.get_running_loop().create_task(write())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _book(self, call: CallRecord, tx: Transaction) -> None:
        await calls.record(tx, call)
        await tokens.add(tx, call, now=self.clock.now())

    def _listen_to_signals(self, stack: contextlib.AsyncExitStack) -> None:
        if not self._signals:
            return
        loop = asyncio.get_running_loop()
        for number, action in (
            (signal.SIGTERM, self.end),
            (signal.SIGINT, self.end),
            (signal.SIGHUP, self.reload),
        ):
            try:
                loop.add_signal_handler(number, action)
            except (ValueError, RuntimeError):  # not the main thread: whoever runs us stops us by end()
                return
            stack.callback(loop.remove_signal_handler, number)

    def reload(self) -> None:
        """Read the configuration again; what needs a restart is named in the log, mistakes change nothing."""
        assert self.daemon is not None
        try:
            fresh = load_settings(self._config_path or self.loaded.source, self.env)
        except ConfigError as error:
            log.error("the configuration has mistakes, nothing was changed:\n%s", error)  # noqa: TRY400 - said in full
            return
        change = compare(self.daemon.settings, fresh.settings)
        self.daemon.reload(change.settings)
        logs.set_level(change.settings.log.level)
        log.info("reloaded %s: %s", fresh.name, ", ".join(change.applied) or "nothing changed")
        if change.restart:
            log.warning("these need a restart of the service: %s", ", ".join(change.restart))

    def _is_healthy(self) -> bool:
        assert self.daemon is not None
        verdict = self.daemon.health.judge()
        if verdict.reason and verdict.reason != self._ill:
            log.error("unwell: %s", verdict.reason)
        self._ill = verdict.reason
        if verdict.lost:
            self.end(EXIT_LOST)
        return verdict.feed

    async def _show_status(self, notifier: Notifier, daemon: Daemon) -> None:
        while True:
            await self.clock.sleep(STATUS_EVERY_S)
            if not notifier.watchdog_s:
                self._is_healthy()
            notifier.status(self._status_line(daemon))

    def _status_line(self, daemon: Daemon) -> str:
        link, node = daemon.link, daemon.link.node
        if node is not None and link.state is LinkState.UP:
            text = f"node {node.id} {node.long_name}, {daemon.responder.waiting} waiting"
            text += "".join(f"; PROBLEM: {problem}" for problem in daemon.problems())
        else:
            text = f"no node ({link.status().get('reason') or link.state}), trying again"
        return text + (f"; unwell: {self._ill}" if self._ill else "")

    async def _status(self, _args: Mapping[str, Any], _report: Report) -> dict[str, object]:
        assert self.daemon is not None
        facts = await self.daemon.status()
        own = [problem for problem in (self._damage, self.copies.problem) if problem]
        problems = facts["problems"]
        return {
            "version": __version__,
            "pid": os.getpid(),
            "unwell": self._ill,
            **facts,
            "database": str(self.daemon.db.path),
            "last_errors": self._errors.listed(),
            "problems": own + (problems if isinstance(problems, list) else []),
        }


def _configured_link(loaded: Loaded, clock: Clock) -> RadioLink:
    from meshai.radio.registry import open_link

    return open_link(loaded.settings.connection, clock)


async def _warm_up(daemon: Daemon) -> None:
    """Load the model's client and learn its context length before the first person has to wait for it."""
    await daemon.model.context_tokens()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
