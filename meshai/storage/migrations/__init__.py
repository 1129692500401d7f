"""Schema versions as numbered SQL files; ``PRAGMA user_version`` says which one a file has.

A released file never changes: a new version is a new file. Each runs in one transaction; the database is
copied beside itself first.
"""

from __future__ import annotations

import sqlite3
from importlib import resources

SCHEMA_VERSION = 3
"""What this program reads and writes."""


def migration_sql(version: int) -> str:
    """The SQL that turns version - 1 into ``version``."""
    for entry in resources.files(__package__).iterdir():
        if entry.name.startswith(f"{version:04d}_") and entry.name.endswith(".sql"):
            return entry.read_text(encoding="utf-8")
    raise LookupError(f"no migration {version}")


def statements(sql: str) -> list[str]:
    """The single statements of a script: ``executescript`` would commit first, a split on ";" breaks triggers."""
    result: list[str] = []
    buffer = ""
    for line in sql.splitlines(keepends=True):
        buffer += line
        if sqlite3.complete_statement(buffer):
            result.append(buffer.strip())
            buffer = ""
    if any(line.strip() and not line.strip().startswith("--") for line in buffer.splitlines()):
        raise ValueError(f"unfinished statement: {buffer.strip()[:60]!r}")
    return result


def create_statement(table: str) -> str:
    """The newest CREATE VIRTUAL TABLE of this name: an index that is lost is made again from it."""
    for version in range(SCHEMA_VERSION, 0, -1):
        for statement in statements(migration_sql(version)):
            words = _without_comments(statement).split()
            if [word.upper() for word in words[:3]] == ["CREATE", "VIRTUAL", "TABLE"] and words[3] == table:
                return _without_comments(statement)
    raise LookupError(f"no virtual table {table}")


def _without_comments(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.strip().startswith("--"))


def migrate(connection: sqlite3.Connection, *, target: int = SCHEMA_VERSION) -> None:
    """Bring the database to ``target``, one transaction a version; a failure leaves it as it was."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    for step in range(version + 1, target + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements(migration_sql(step)):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step}")
            connection.execute("COMMIT")
        except BaseException:  # whatever it was: the file must stay at the version it had
            connection.execute("ROLLBACK")
            raise
