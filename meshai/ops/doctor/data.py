"""The database: sound, how large, copied; keys that changed; when somebody last got an answer."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from meshai.errors import DatabaseCorruptError, DatabaseNewerError, MeshAIError
from meshai.ops.doctor.base import Check, Context, fail, ok, skip, warn
from meshai.ops.humanize import duration
from meshai.storage import backup, recover

OLD_COPY_S = 3 * 86_400.0
LONG_AGO_S = 7 * 86_400.0
SILENT_S = 3600.0


def check_database(ctx: Context) -> Iterator[Check]:
    """Sound, and how large. Only reads, also beside a running daemon."""
    if not _is_there(ctx):
        yield from _absent(ctx)
        return
    try:
        facts = backup.inspect(ctx.database)
    except DatabaseCorruptError as error:
        copies = recover.daily_copies(ctx.database)
        newest = str(copies[0]) if copies else "FILE (your newest copy)"
        steps = ("sudo systemctl stop meshai", f"sudo meshai restore {newest}", "sudo systemctl start meshai")
        yield fail("database", str(error), "; ".join(steps))
        return
    except DatabaseNewerError as error:
        yield fail("database", str(error), "update the program: docs/install.md, Updating")
        return
    except MeshAIError as error:
        yield skip("database", str(error), "sudo meshai doctor")
        return
    people = facts.rows.get("conversations", 0)
    yield ok("database", f"sound: {facts.messages} messages of {people} conversations, {facts.bytes / 1e6:.1f} MB")


def check_copies(ctx: Context) -> Iterator[Check]:
    """There is a way back."""
    wanted = ctx.settings.storage.daily_copies
    if not wanted:
        yield warn("copies", "automatic copies are off (storage.daily_copies: 0)", "meshai backup FILE, now and then")
        return
    if not _is_there(ctx) or not os.access(ctx.database.parent, os.R_OK | os.X_OK):
        return
    copies = recover.daily_copies(ctx.database)
    if not copies:
        yield ok("copies", "none yet: the first is made within a quarter of an hour of running")
        return
    age_s = max(0.0, ctx.now - copies[0].stat().st_mtime)
    text = f"{len(copies)}, the newest {duration(age_s)} old"
    if ctx.daemon_runs and age_s > OLD_COPY_S:
        yield warn("copies", text, "journalctl -u meshai | grep copy: is the disk full?")
    else:
        yield ok("copies", text)


def check_people(ctx: Context) -> Iterator[Check]:
    """Changed keys that wait for a decision; when an answer last arrived."""
    if ctx.facts is not None:
        yield from _problems(ctx)
    rows = _rows(ctx)
    if rows is None and ctx.facts is None:
        return
    alarms, delivered, asked = rows or ([], (ctx.facts or {}).get("last_delivered_at"), None)
    if ctx.facts is None:
        for (node_id,) in alarms:
            yield warn(
                "keys", f"{node_id} may have a new key", f"meshai identity list; meshai identity accept '{node_id}'"
            )
    if delivered is None:
        yield skip("answers", "none was delivered yet")
        return
    text = f"the last delivered answer was {duration(ctx.now - delivered)} ago"
    unanswered = asked is not None and asked > delivered + SILENT_S
    if unanswered:
        yield warn("answers", f"{text}, but there were questions since", "meshai status; journalctl -u meshai -e")
    elif ctx.now - delivered > LONG_AGO_S:
        yield warn(
            "answers",
            f"{text}: is the antenna connected, does the node hear anybody?",
            "send it !ping from another node",
        )
    else:
        yield ok("answers", text)


def _problems(ctx: Context) -> Iterator[Check]:
    """What the running daemon complains of; the node's settings are told by their own check."""
    assert ctx.facts is not None
    told = [str(text) for text in ctx.facts.get("problems", [])]
    told += [str(text) for text in ctx.facts.get("delivery", {}).get("problems", [])]
    for text in told:
        if text.startswith("!"):
            yield warn("keys", text, "meshai identity list")
        elif not text.startswith(("the node ", "channel ")):
            yield warn("daemon", text, "journalctl -u meshai -e")
    for node in ctx.facts.get("nodes", []):
        if node.get("key_alarm_at"):
            node_id = node["node_id"]
            yield warn(
                "keys", f"{node_id} may have a new key", f"meshai identity list; meshai identity accept '{node_id}'"
            )


def _rows(ctx: Context) -> tuple[list[Any], float | None, float | None] | None:
    """Nodes with an alarm, when a part was last delivered, when a question last came; None when it cannot be read."""
    if not _is_there(ctx) or not os.access(ctx.database, os.R_OK):
        return None
    try:
        with closing(sqlite3.connect(f"{ctx.database.absolute().as_uri()}?mode=rw", uri=True)) as db:
            db.execute("PRAGMA query_only = ON")
            alarms = db.execute("SELECT node_id FROM nodes WHERE key_alarm_at IS NOT NULL").fetchall()
            delivered = db.execute("SELECT max(settled_at) FROM outbound WHERE state = 'delivered'").fetchone()[0]
            asked = db.execute("SELECT max(received_at) FROM inbound WHERE kind = 'chat'").fetchone()[0]
    except sqlite3.Error:  # the database check says what is wrong with it
        return None
    return alarms, delivered, asked


def _is_there(ctx: Context) -> bool:
    """Also when it may not be looked at: then reading says why."""
    return os.path.lexists(ctx.database) or not os.access(_nearest(ctx), os.X_OK)


def _nearest(ctx: Context) -> str:
    directory = ctx.database.parent
    while not os.path.lexists(directory) and directory != directory.parent:
        directory = directory.parent
    return str(directory)


def _absent(ctx: Context) -> Iterator[Check]:
    if ctx.daemon_runs:
        yield skip(
            "database",
            f"there is none at {ctx.database}: the daemon uses another",
            "meshai doctor -c FILE, with the daemon's configuration",
        )
    else:
        yield skip("database", f"none yet; it begins at {ctx.database} with the first meshai run")
