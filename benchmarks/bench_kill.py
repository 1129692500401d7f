"""``kill -9`` at random moments while people talk with the bot: is any question or answer lost or doubled?

    python -m benchmarks.bench_kill [--kills 200] [--seed 1] [--quick]

A real ``meshai run`` over TCP, killed and started again; the virtual mesh with the phones and the scripted model live
in this process and survive. Half of the kills come at any time after the start (some before the link is up), half
within a quarter of a second after the model was asked or a part reached a phone. The judge sees only what the phones
saw: every sentence of the model carries a mark that names its question, its number and their count, so that a part
that is missing, doubled or cut shows. The database is opened only to name the reason.

A text that the node has written to the killed daemon's socket and that no daemon has read is gone: the stream API has
no acknowledgement between node and client (docs/protocol.md §2.5), so no program can keep it. Such questions, for
which the database has no row, are counted apart ("died in the socket").
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import result, row
from benchmarks.rig import Bot
from meshai.delivery.parts import MORE_HINT
from meshai.delivery.writer import BROKEN_OFF, CUT_BY_RESTART
from meshai.llm.scripted import Reply, ScriptedServer, Seen
from meshai.radio.virtual import DefaultMesh, Fate, Message, Phone, Sent, default_mesh

SPEED = 10.0
PEOPLE = 10
PATIENCE_S = 20.0
QUIET_S = 150.0
TOKEN = re.compile(r"\bq\d{2}x\d{4}\b")
MARK = re.compile(r"\b(q\d{2}x\d{4})v(\d+)s(\d+)of(\d+)\b")
WORDS = (
    "antenna",
    "relay",
    "battery",
    "channel",
    "morning",
    "valley",
    "mast",
    "cable",
    "signal",
    "ridge",
    "solar",
    "hill",
)
NOTES = (BROKEN_OFF, CUT_BY_RESTART)


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run, and return rows and numbers."""
    parser = argparse.ArgumentParser(prog="bench_kill")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="six kills")
    parser.add_argument("--keep", type=Path, help="leave database, log and what the phones saw in this directory")
    options, _ = parser.parse_known_args(list(argv))
    kills = 6 if options.quick else options.kills
    with tempfile.TemporaryDirectory(prefix="meshai-kill-") as folder:
        directory = options.keep or Path(folder)
        directory.mkdir(parents=True, exist_ok=True)
        verdict = asyncio.run(play(directory, kills=kills, seed=options.seed))
    return result(rows_of(verdict), **verdict)


def rows_of(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """The verdict as lines of the table."""
    kills = f"{verdict['kills']} kills, {verdict['stored']} questions"
    return [
        row("kill -9: questions lost", "0", f"{verdict['lost']} ({kills})", verdict["lost"] == 0),
        row("kill -9: answers incomplete without a note", "0", str(verdict["incomplete"]), verdict["incomplete"] == 0),
        row("kill -9: answers doubled", "0", str(verdict["doubled"]), verdict["doubled"] == 0),
        row("kill -9: answered by an honest note", "", str(verdict["noted"])),
        row("kill -9: died in the socket, unread", "", str(verdict["unread"])),
        row("kill -9: errors in the log", "0", str(len(verdict["errors"])), not verdict["errors"]),
        row("kill -9: memory invariants afterwards", "hold", verdict["verify"], verdict["verify"] == "hold"),
    ]


async def play(directory: Path, *, kills: int, seed: int) -> dict[str, Any]:
    """The whole story; everything it starts is gone afterwards."""
    rng = random.Random(seed)
    virtual = default_mesh(speed=SPEED, seed=seed, loss=0.0, preset="SHORT_FAST", phones=PEOPLE)
    async with ScriptedServer() as server:
        model = Model(server, random.Random(seed + 1))
        await virtual.start()
        try:
            people = [Person(index, phone, virtual, random.Random(seed * 100 + index)) for index, phone in
                      enumerate(virtual.phones)]  # fmt: skip
            bot = Bot(directory, **_settings(virtual, server))
            story = Story(people, model, bot, rng)
            try:
                await story.run(kills)
            finally:
                await bot.kill()
            verdict = judge(people, bot.database, model)
            verdict |= {"kills": kills, "seed": seed, "errors": bot.errors(), "exit": story.exit_code}
            verdict["verify"] = await bot.verify()
        finally:
            await virtual.stop()
    (directory / "phones.json").write_text(json.dumps({p.name: p.story() for p in people}, indent=1))
    return verdict


# --- the model ------------------------------------------------------------------------------------------------------


class Model:
    """Answers every question it finds behind the context with marked sentences, at the pace of a small model."""

    def __init__(self, server: ScriptedServer, rng: random.Random) -> None:
        self.asked = asyncio.Event()
        self.times: Counter[str] = Counter()
        self.prompts: list[tuple[float, list[str], str]] = []
        self._rng = rng
        server.rule = self._rule

    def _rule(self, seen: Seen) -> Reply:
        tokens = TOKEN.findall(seen.last.rpartition("]\n\n")[2]) if seen.body.get("stream") else []
        if not tokens:
            return Reply("People asked about antennas, relays, batteries, hills and valleys, and got answers to that.")
        self.asked.set()
        tokens = list(dict.fromkeys(tokens))
        self.times.update(tokens)
        self.prompts.append((asyncio.get_running_loop().time(), tokens, seen.last))
        share = max(1, 8 // len(tokens))
        text = " ".join(self._about(token, share) for token in tokens)
        return Reply(text, tokens_per_s=self._rng.choice((60.0, 150.0, 400.0)))

    def _about(self, token: str, most: int) -> str:
        fixed = random.Random(token)
        count = min(most, fixed.randint(1, 8))
        variant = self.times[token] if fixed.random() < 0.25 else 0  # some models never say the same thing twice
        lines = []
        for number in range(1, count + 1):
            words = " ".join(fixed.choices(WORDS, k=fixed.randint(3, 7)))
            lines.append(f"{token}v{variant}s{number}of{count} {words}.")
        return " ".join(lines)


# --- the people -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Asked:
    """A question of a phone."""

    token: str
    sent: Sent
    at: float


@dataclass
class Person:
    """Somebody with a phone: asks, waits for the answer, thinks, asks again; sometimes two questions at once."""

    index: int
    phone: Phone
    virtual: DefaultMesh
    rng: random.Random
    asked: list[Asked] = field(default_factory=list)
    marks: dict[tuple[str, int, int], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    offered: set[tuple[str, int]] = field(default_factory=set)  # the sentence before "send !more"
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.phone.on_message = self._on_message

    @property
    def name(self) -> str:
        return self.phone.node.id

    def story(self) -> dict[str, Any]:
        """Everything this phone asked and got, for looking at a failure."""
        return {
            "asked": [(a.at, a.token, a.sent.packet_id, a.sent.fate) for a in self.asked],
            "got": [(round(m.at / SPEED, 3), m.packet_id, m.reply_id, m.emoji, m.text) for m in self.phone.received],
        }

    def complete(self, token: str) -> int:
        """How many complete answers to a question came: all sentences, or the first ones and an offer of more."""
        return sum(
            set(numbers) == set(range(1, count + 1))
            or (set(numbers) == set(range(1, max(numbers) + 1)) and (token, max(numbers)) in self.offered)
            for (asked, _, count), numbers in self.marks.items()
            if asked == token
        )

    def doubled(self, token: str) -> bool:
        """Whether any sentence came twice."""
        return any(
            times > 1 for (asked, _, _), numbers in self.marks.items() if asked == token for times in numbers.values()
        )

    def touched(self, token: str) -> bool:
        """Whether anything of an answer came."""
        return any(asked == token for asked, _, _ in self.marks)

    async def talk(self, over: asyncio.Event) -> None:
        """Until ``over``; the last answers may come later."""
        await asyncio.sleep(self.rng.uniform(0, 2))
        while not over.is_set():
            questions = [await self._ask()]
            if self.rng.random() < 0.25:
                await asyncio.sleep(self.rng.uniform(0.02, 0.8))
                questions.append(await self._ask())
            await self._wait(questions)
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))

    async def _ask(self) -> Asked:
        token = f"q{self.index:02}x{len(self.asked):04}"
        text = f"What about the {self.rng.choice(WORDS)} and the {self.rng.choice(WORDS)}, {token}?"
        sent = await self.phone.send_dm(self.virtual.bot, text)
        question = Asked(token, sent, self.virtual.mesh.timeline.real())
        self.asked.append(question)
        return question

    async def _wait(self, questions: list[Asked]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not all(self.complete(question.token) for question in questions):
                    self.heard.clear()
                    await self.heard.wait()
        except TimeoutError:
            return

    def _on_message(self, message: Message) -> None:
        found = MARK.findall(message.text)
        for token, variant, number, count in found:
            self.marks[token, int(variant), int(count)][int(number)] += 1
        if found and message.text.endswith(MORE_HINT):
            self.offered.add((found[-1][0], int(found[-1][2])))
        self.heard.set()


# --- the story ------------------------------------------------------------------------------------------------------


class Story:
    """Kills and starts while everybody talks."""

    def __init__(self, people: list[Person], model: Model, bot: Bot, rng: random.Random) -> None:
        self._people, self._model, self._bot, self._rng = people, model, bot, rng
        self.exit_code: int | None = None

    async def run(self, kills: int) -> None:
        over = asyncio.Event()
        talks = [asyncio.create_task(person.talk(over)) for person in self._people]
        try:
            for _ in range(kills):
                await self._bot.start()
                await self._moment()
                await self._bot.kill()
            await self._bot.start()
            over.set()
            await asyncio.gather(*talks)
            await self._quiet()
            self.exit_code = await self._bot.end()
        finally:
            for talk in talks:
                talk.cancel()

    async def _moment(self) -> None:
        """Any time, or just after something happened."""
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.uniform(0.2, 5.0))
            return
        events = [self._model.asked, *(person.heard for person in self._people)]
        for event in events:
            event.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            for _ in range(self._rng.randint(1, 4)):
                await asyncio.wait(waits, timeout=6.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        await asyncio.sleep(self._rng.uniform(0.0, 0.25))

    async def _quiet(self) -> None:
        still = 0
        try:
            async with asyncio.timeout(QUIET_S):
                while still < 5:
                    await asyncio.sleep(0.3)
                    still = still + 1 if _is_quiet(self._bot.database) else 0
        except TimeoutError:
            return  # what is still open then is judged as it is


# --- the judge ------------------------------------------------------------------------------------------------------


def judge(people: Sequence[Person], database: Path, model: Model) -> dict[str, Any]:
    """Each question whose packet the bot's node confirmed, and what its phone got."""
    kinds: Counter[str] = Counter()
    complaints: list[str] = []
    for person in people:
        for asked in person.asked:
            verdict, detail = _fate(person, asked, database, model)
            kinds[verdict] += 1
            if verdict in ("lost", "incomplete", "doubled"):
                complaints.append(f"{verdict}: {asked.token} of {person.name}: {detail}")
    judged = ("answered", "lost", "incomplete", "doubled", "noted")
    return {
        **{kind: kinds[kind] for kind in (*judged, "unread", "undelivered")},
        "stored": sum(kinds[kind] for kind in judged),
        "asked_again": sum(times > 1 for times in model.times.values()),
        "complaints": complaints,
    }


def _fate(person: Person, asked: Asked, database: Path, model: Model) -> tuple[str, str]:
    complete = person.complete(asked.token)
    if person.doubled(asked.token) or complete > 1:
        return "doubled", _why(person, asked, database, model)
    if complete == 1:
        return "answered", ""
    rows = _query(database, "SELECT id, state FROM inbound WHERE node_id = ? AND packet_id = ?", person.name,
                  asked.sent.packet_id)  # fmt: skip
    if not rows:
        return ("undelivered" if asked.sent.fate is Fate.FAILED else "unread"), ""
    if _noted(person, asked, database):
        return "noted", ""
    return ("incomplete" if person.touched(asked.token) else "lost"), _why(person, asked, database, model)


def _noted(person: Person, asked: Asked, database: Path) -> bool:
    """The phone got a notice for this question, or the answer with a note that says it is cut."""
    texts = {m.packet_id: m.text for m in person.phone.received}
    packets = _query(
        database,
        "SELECT o.packet_id, a.kind FROM outbound o JOIN answers a ON a.id = o.answer_id WHERE a.inbound_id ="
        " (SELECT id FROM inbound WHERE node_id = ?1 AND packet_id = ?2) OR a.id ="
        " (SELECT answer_id FROM inbound WHERE node_id = ?1 AND packet_id = ?2)",
        person.name, asked.sent.packet_id,
    )  # fmt: skip
    got = [(texts[packet], kind) for packet, kind in packets if packet in texts]
    return any(kind == "notice" or any(note in text for note in NOTES) for text, kind in got)


def _why(person: Person, asked: Asked, database: Path, model: Model) -> str:
    """What the database and the model know about it."""
    inbound = _query(
        database, "SELECT id, state, reason, answer_id FROM inbound WHERE node_id = ? AND packet_id = ?", person.name,
        asked.sent.packet_id,
    )  # fmt: skip
    parts = _query(
        database,
        "SELECT o.answer_id, o.part, o.total, o.packet_id, o.state, o.reason, o.attempts FROM outbound o"
        " WHERE o.content LIKE ? ORDER BY o.id",
        f"%{asked.token}%",
    )
    prompts = [(round(at, 2), tokens) for at, tokens, _ in model.prompts if asked.token in tokens]
    got = [(m.packet_id, m.text) for m in person.phone.received if asked.token in m.text]
    return f"inbound {inbound}, parts {parts}, asked {prompts}, phone got {got}"


def _query(database: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Look into the database, from beside the daemon."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as connection:
        try:
            return connection.execute(sql, values).fetchall()
        except sqlite3.OperationalError:  # killed before the first migration was committed
            return []


def _is_quiet(database: Path) -> bool:
    """Whether nothing is being answered or on its way."""
    rows = _query(
        database,
        "SELECT (SELECT count(*) FROM inbound WHERE state IN ('received', 'answering'))"
        " + (SELECT count(*) FROM outbound WHERE settled_at IS NULL AND state NOT IN ('held', 'expired')"
        " AND answer_id IN (SELECT id FROM answers WHERE kind != 'tapback'))",
    )
    return bool(rows) and rows[0][0] == 0


def _settings(virtual: DefaultMesh, server: ScriptedServer) -> dict[str, dict[str, Any]]:
    endpoint = {"name": "scripted", "base_url": server.base_url, "model": "scripted", "context_tokens": 4096}
    return {
        "connection": {"type": "tcp", "tcp_host": virtual.bot_host, "tcp_port": virtual.bot_port},
        "reply": {"spacing_s": 2.5 / SPEED, "ack_timeout_s": 10},
        "limits": {"per_node_per_hour": 1000, "per_hour": 10000, "queue": 40},
        "airtime": {"budget_percent": 100, "slow_at_percent": 100, "hold_at_percent": 100},
        "llm": {"parallel": 2, "endpoints": [endpoint]},
        "memory": {"idle_s": 2},
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
