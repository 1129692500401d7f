"""When only a new process can help, the daemon ends with 1 and systemd starts it anew (DESIGN §3 Watchdog)."""

from dataclasses import replace
from pathlib import Path

from support.proof_world import TIMINGS, ProofWorld

UNIT = Path(__file__).parent.parent.parent / "systemd" / "meshai.service"


async def test_node_that_never_finishes_a_handshake_ends_the_daemon_with_one(tmp_path):
    """M12: exit code 0 and Restart=on-failure left another bot dead after a boot."""
    world = ProofWorld(tmp_path)
    world.port.silent = True
    world.timings = replace(TIMINGS, silence_s=0.05, hopeless_s=0.3, hopeless_times=3)
    async with world:
        await world.until(world.running.done)
        assert world.running.result() == 1
        assert world.service.daemon.link.status()["handshakes_failed"] >= 3


async def test_absent_node_is_healthy(tmp_path):
    world = ProofWorld(tmp_path)
    world.timings = replace(TIMINGS, hopeless_s=0.1, hopeless_times=2)
    async with world:
        await world.up()
        world.port.refuse(500.0)
        await world.pass_time(100)
        assert not world.running.done()
        assert world.daemon.health.judge().feed


async def test_stuck_library_ends_the_daemon_with_one(tmp_path):
    async with ProofWorld(tmp_path) as world:
        await world.up()
        world.link._link._change(type(world.link.state).STUCK, "four connections do not close")
        await world.until(world.running.done)
        assert world.running.result() == 1


def test_unit_starts_it_again_after_every_exit_code():
    """M12: the exit codes and the unit must match; a bad configuration (2) must not be retried for ever."""
    lines = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    assert lines["Restart"] == "always"
    assert lines["Type"] == "notify"
    assert "WatchdogSec" in lines
    assert "1" not in lines.get("RestartPreventExitStatus", "").split()
