"""A large archive, made quickly: what a bot of many years has on disk."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate
from pathlib import Path

from benchmarks.rig import FIRST_NODE, key_of
from meshai.radio.link import node_id
from meshai.storage.database import prepare

START = 1_700_000_000.0
SUMMARY_EVERY = 20
KEPT_RAW = 12


def vocabulary() -> list[str]:
    """Invented words, so that how often a word occurs is ours to choose."""
    rng = random.Random(1)
    syllables = [c + v for c in "bcdfghjklmnprstvz" for v in "aeiou"]
    return ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(20_000)]


def weights(count: int) -> list[float]:
    """How often each word occurs, as in a language: the most frequent one in seven of a hundred messages."""
    return [1.0 / (rank + 30) for rank in range(count)]


def build(path: Path, *, messages: int, nodes: int) -> None:
    """``messages`` rows of ``nodes`` persons, compacted as the daemon would have, search index included."""
    prepare(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -262144")
        trigger = db.execute("SELECT sql FROM sqlite_master WHERE name = 'messages_fts_insert'").fetchone()[0]
        db.execute("BEGIN")
        db.execute("DROP TRIGGER messages_fts_insert")  # indexed at once afterwards: three times as fast
        _people(db, nodes, messages // nodes)
        db.executemany(
            "INSERT INTO messages (conv_id, seq, epoch, role, sender, sender_name, content, created_at)"
            " VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
            _talk(messages, nodes),
        )
        db.execute(trigger)
        db.execute("INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _people(db: sqlite3.Connection, nodes: int, each: int) -> None:
    anchor = max(0, each - KEPT_RAW) // SUMMARY_EVERY * SUMMARY_EVERY
    ids = [node_id(FIRST_NODE + number) for number in range(nodes)]
    db.executemany(
        "INSERT INTO nodes (node_id, long_name, first_heard, last_heard, hops) VALUES (?, ?, ?, ?, 1)",
        ((name, f"Node {number}", START, START) for number, name in enumerate(ids)),
    )
    db.executemany(
        "INSERT INTO conversations (id, key, kind, node_id, next_seq, anchor_seq, facts_upto_seq, disclosed_at,"
        " created_at, last_active) VALUES (?, ?, 'dm', ?, ?, ?, ?, ?, ?, ?)",
        (
            (number + 1, f"dm:{name}", name, each, anchor, anchor, START, START, START)
            for number, name in enumerate(ids)
        ),
    )
    db.executemany(
        "INSERT INTO identities (node_id, public_key, conv_id, first_seen) VALUES (?, ?, ?, ?)",
        ((name, key_of(number), number + 1, START) for number, name in enumerate(ids)),
    )
    words = vocabulary()
    rng = random.Random(3)
    db.executemany(
        "INSERT INTO summaries (conv_id, epoch, start_seq, end_seq, text, status, strategy, tokens, created_at,"
        " completed_at) VALUES (?, 0, ?, ?, ?, 'completed', 'tiered', 80, ?, ?)",
        (
            (number + 1, begin, begin + SUMMARY_EVERY - 1, " ".join(rng.choices(words, k=50)), START, START)
            for number in range(nodes)
            for begin in range(0, anchor, SUMMARY_EVERY)
        ),
    )


def _talk(messages: int, nodes: int) -> Iterator[tuple[int, int, str, str, str, str, float]]:
    rng = random.Random(2)
    words = vocabulary()
    summed = list(accumulate(weights(len(words))))
    kinds = min(messages, 20_000)
    sentences = [" ".join(rng.choices(words, cum_weights=summed, k=rng.randint(6, 24))) for _ in range(kinds)]
    for at in range(messages):
        person, seq = at % nodes, at // nodes
        role = "assistant" if seq % 2 else "user"
        text = rng.choice(sentences)
        sender = node_id(FIRST_NODE + person) if role == "user" else ""
        yield person + 1, seq, role, sender, f"Node {person}" if sender else "ai", text, START + at
