"""The daemon on a database that was damaged while it was down: yesterday's memory, and a word about it."""

from support.e2e_world import World

from meshai.ops.copies import DailyCopies


async def test_daemon_starts_from_the_newest_copy_and_says_so(tmp_path):
    async with World(tmp_path) as world:
        assert await world.ask(world.alice, "remember me") == "OK"
        copies = DailyCopies(world.stage.database, world.daemon.clock, keep=lambda: 7)
        made = copies.make()
        await world.stage.stop_bot()
        raw = bytearray(world.stage.database.read_bytes())
        raw[8192:40960] = b"\x55" * 32768
        world.stage.database.write_bytes(bytes(raw))
        await world.stage.start_bot()
        assert world.value("SELECT count(*) FROM messages WHERE content = 'remember me'") == 1
        assert await world.ask(world.alice, "still there?") == "OK"
        told = (await world.stage.service._status({}, lambda *_: None))["problems"]
    assert any("was damaged and is kept as" in problem and made.name in problem for problem in told)
    assert len(list(tmp_path.glob("meshai.db.corrupt-*"))) == 1


async def test_backup_in_the_middle_of_a_conversation_holds_it_so_far(tmp_path):
    from meshai.storage import backup

    async with World(tmp_path) as world:
        for number in range(3):
            await world.ask(world.alice, f"question {number}")
            facts = backup.copy(world.stage.database, tmp_path / f"copy{number}")
            assert facts.rows["messages"] == 2 * (number + 1)
            assert facts.messages == 2 * (number + 1)
