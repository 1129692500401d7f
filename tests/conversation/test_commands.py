"""The !commands through the running daemon (DESIGN §4.3)."""

import pytest
from support.inbox_world import OTHER_KEY, ZOE

from meshai.commands.registry import COMMANDS


@pytest.mark.parametrize("word", [w for command in COMMANDS for w in (command.name, *command.aliases)])
async def test_every_command_answers_in_one_packet(start_station, word):
    station = await start_station(access={"admins": [ZOE]})
    await station.dm("hello")
    await station.dm(f"!{word}")
    assert len(station.texts()) == 2
    assert len(station.texts()[1].encode()) <= 200
    assert not station.texts()[1].startswith("!")
    assert len(station.model.requests) == 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
async def test_help_of_every_command_fits_one_packet(start_station, command):
    station = await start_station(access={"admins": [ZOE]})
    await station.dm(f"!help {command.name}")
    assert station.texts()[0].startswith(command.help[:20])
    assert len(station.texts()) == 1


async def test_reset_counts_messages_and_hides_them(station):  # S0-20
    await station.dm("My name is Zoe.")
    await station.dm("!ping")
    await station.dm("!reset")
    assert station.texts()[-1] == "Cleared 2 messages from your history."
    await station.dm("What is my name?")
    assert all("Zoe" not in m.content for m in station.prompt().all)
    assert await station.db.fetch_value("SELECT count(*) FROM messages WHERE content = 'My name is Zoe.'") == 1


async def test_ping_reports_the_packet_received(station):
    await station.dm("!ping", rx_snr=5.5, rx_rssi=-71)
    assert station.texts()[0] == "pong: heard you over 2 hops, SNR 5.5 dB, RSSI -71 dBm."


async def test_again_repeats_one_part_without_a_model_call(station):
    station.model.replies = ["This sentence tells something about the mesh and its radios, one by one. " * 6]
    await station.dm("Tell me")
    second = station.texts()[1]
    await station.dm("!again 2")
    assert station.texts()[-1] == second
    assert len({r.packet_id for r in station.link.sent}) == len(station.link.sent)
    await station.dm("!again 9")
    assert station.texts()[-1] == "I have no such part to send again."


async def test_stop_ends_the_answer_in_progress(station):
    station.model.gate.clear()
    await station.dm("Tell me everything")
    await station.dm("!stop")
    station.model.gate.set()
    await station.quiet()
    assert station.texts() == ["Stopped."]
    await station.dm("!stop")
    assert station.texts()[-1] == "There is nothing to stop."


async def test_unknown_command_gets_one_hint(station):
    await station.dm("!foo")
    await station.dm("!bar")
    assert station.texts() == ["I do not know !foo. Try !help."]
    assert await station.states() == ["answered", "ignored"]


async def test_same_command_packet_twice_acts_once(station):
    packet = await station.dm("!ping")
    await station.daemon.reception.handle(packet)
    await station.quiet()
    assert len(station.texts()) == 1


async def test_stateless_person_has_no_memory_commands(start_station):
    station = await start_station(access={"require_pki": False})
    await station.dm("hello")
    await station.dm("!reset", key=None)
    assert "no memory of you" in station.texts()[-1]


async def test_admin_commands_do_not_exist_for_others(start_station):
    station = await start_station(access={"admins": [ZOE]})
    await station.dm("hello")
    await station.dm("!admin pause", key=OTHER_KEY)  # the same number with another key
    assert station.texts()[-1] == "I do not know !admin. Try !help."
    await station.dm("!help", key=OTHER_KEY)
    assert "!admin" not in station.texts()[-1]


async def test_paused_bot_answers_admins_only_also_after_a_restart(start_station):
    station = await start_station(access={"admins": [ZOE]})
    await station.dm("!admin pause 2h")
    assert station.texts() == ["Paused for 2h 0m: I answer admins only."]
    await station.restart()
    await station.dm("hello?", node="!0000b002", key=OTHER_KEY)
    assert len(station.texts()) == 1
    await station.dm("!admin resume")
    await station.dm("hello?", node="!0000b002", key=OTHER_KEY)
    assert len(station.texts("!0000b002")) == 1


async def test_admin_blocks_and_unblocks_a_node(start_station):
    station = await start_station(access={"admins": [ZOE]})
    await station.dm("!admin block !0000b002 2h")
    assert station.texts()[-1] == "Node !0000b002 gets silence for 2h 0m."
    await station.dm("hello?", node="!0000b002", key=OTHER_KEY)
    assert station.texts("!0000b002") == []
    await station.dm("!admin unblock !0000b002")
    await station.dm("hello?", node="!0000b002", key=OTHER_KEY)
    assert len(station.texts("!0000b002")) == 1
