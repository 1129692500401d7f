"""``meshai run`` as a process of its own: kill, signals, status, locks and broken databases."""

import asyncio
import json
import os
import signal
import sqlite3
from contextlib import closing

import pytest
from support.e2e_world import Process

from meshai.llm.scripted import Reply

LONG = " ".join(f"Sentence number {n} says something about the weather on the mountain." for n in range(1, 8))


async def test_kill_while_the_model_writes_gives_exactly_one_answer(process):
    """DESIGN §5: nothing lost, nothing doubled by kill -9."""
    await process.start()
    process.server.reply(Reply("Never finished.", hang=True))
    process.server.rule = lambda prompt: "The one answer."
    await process.send(process.alice, "What is a relay?")
    await process.server.wait_for_requests(1)
    assert await process.end(signal.SIGKILL) == -signal.SIGKILL
    await process.start()
    await process.until(lambda: process.text(process.alice) == "The one answer.")
    await process.quiet()
    assert len(process.messages(process.alice)) == 1
    assert process.rows("SELECT role FROM messages ORDER BY seq") == [("user",), ("assistant",)]


async def test_kill_between_two_parts_gives_each_part_once(build):
    process = await build(Process, reply={"spacing_s": 0.8})
    await process.start()
    process.server.reply(LONG)
    process.server.rule = lambda prompt: LONG
    await process.send(process.alice, "Tell me about the weather.")
    await process.until(lambda: len(process.messages(process.alice)) == 1)
    await process.end(signal.SIGKILL)
    await process.start()
    await process.until(lambda: len(process.messages(process.alice)) >= 3)
    await process.quiet()
    texts = [m.text for m in process.messages(process.alice)]
    assert [text[:2] for text in texts] == ["[1", "[2", "[3"]
    assert process.value("SELECT count(*) FROM messages WHERE role = 'assistant'") == 1


async def test_sigterm_closes_cleanly_and_keeps_the_conversation(process):
    await process.start()
    await process.ask(process.alice, "My camp is at the north ridge.")
    assert await process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.log.read_text()
    assert not (process.path / "control.sock").exists()
    await process.start()
    await process.ask(process.alice, "Where is my camp?")
    assert "north ridge" in process.server.requests[-1].prompt
    assert await process.end(signal.SIGINT) == 0


async def test_sighup_reloads_what_can_be_reloaded(process):
    await process.start()
    process.server.rule = lambda prompt: LONG
    process.configure(reply={"max_parts": 1}, storage={"database": str(process.path / "other.db")})
    process.running.send_signal(signal.SIGHUP)
    await process.until(lambda: "reloaded" in process.log.read_text())
    log = process.log.read_text()
    assert "reply.max_parts" in log
    assert "need a restart of the service: storage.database" in log
    await process.ask(process.alice, "Tell me about the weather.")
    assert len(process.messages(process.alice)) == 1


async def test_sighup_with_a_broken_file_changes_nothing(process):
    await process.start()
    process.config.write_text("reply: {max_bytes: lots}\n")
    process.running.send_signal(signal.SIGHUP)
    await process.until(lambda: "nothing was changed" in process.log.read_text())
    assert "config.yaml:1:" in process.log.read_text()
    assert await process.ask(process.alice, "!ping")


async def test_status_of_the_running_daemon(process):
    await process.start()
    await process.ask(process.alice, "Hello")
    code, out, _ = await process.meshai("status", "-c", str(process.config))
    assert code == 0
    assert process.stage.virtual.bot.id in out
    assert "2 messages of 1 people" in out
    assert process.alice.node.id in out
    code, out, _ = await process.meshai("status", "-c", str(process.config), "--json")
    assert code == 0
    assert json.loads(out)["link"]["state"] == "up"


async def test_status_without_a_daemon_says_so(process):
    process.configure()
    code, out, err = await process.meshai("status", "-c", str(process.config))
    assert (code, out) == (3, "")
    assert "no daemon is running" in err


async def test_status_after_a_kill_says_that_it_died(process):
    """The socket's file outlives a killed daemon."""
    await process.start()
    await process.end(signal.SIGKILL)
    code, _, err = await process.meshai("status", "-c", str(process.config))
    assert code == 3
    assert "Traceback" not in err


async def test_second_daemon_on_one_database_is_refused(process):
    await process.start()
    code, _, err = await process.meshai("run", "-c", str(process.config))
    assert code == 3
    assert f"another MeshAI (process {process.running.pid}) uses this database" in err
    assert await process.ask(process.alice, "!ping")


async def test_newer_database_is_refused(process):
    process.configure()
    with closing(sqlite3.connect(process.stage.database)) as db:
        db.execute("PRAGMA user_version = 9999")
    code, _, err = await process.meshai("run", "-c", str(process.config))
    assert code == 3
    assert "newer" in err
    assert "Traceback" not in err


async def test_corrupt_database_is_kept_and_a_new_one_begun(process):
    process.stage.database.write_bytes(b"this is no database" * 1000)
    await process.start()
    assert "the database was damaged and is kept as" in process.log.read_text()
    assert "Traceback" not in process.log.read_text()
    (kept,) = process.path.glob("meshai.db.corrupt-*")
    assert kept.read_bytes() == b"this is no database" * 1000
    assert "pong" in await process.ask(process.alice, "!ping")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_database_in_a_read_only_directory_is_refused(process):
    process.configure()
    process.path.chmod(0o500)
    try:
        code, _, err = await process.meshai("run", "-c", str(process.config))
    finally:
        process.path.chmod(0o700)
    assert code == 3
    assert "Traceback" not in err


async def test_database_that_is_a_directory_is_refused(process):
    process.configure()
    process.stage.database.mkdir()
    code, _, err = await process.meshai("run", "-c", str(process.config))
    assert code in (1, 3)
    assert "meshai.db" in err
    assert "Traceback" not in err


async def test_daemon_starts_without_its_node_and_finds_it(process):
    await process.stage.virtual.port.stop()
    process.configure()
    process.running = await process.spawn("run", "-c", str(process.config), log=process.log)
    await process.until(lambda: "is up" in process.log.read_text())
    await process.stage.virtual.port.start()
    await process.until(lambda: "connected to" in process.log.read_text(), 20.0)
    assert await process.ask(process.alice, "!ping")
    await asyncio.sleep(0)
