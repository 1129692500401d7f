"""Every way a node goes away (docs/protocol.md §5.3), on TCP and on a pseudo terminal as serial."""

import asyncio
import logging
import threading
import time
from dataclasses import replace

import pytest
import serial
from support.wire_node import FAST, OWN, PEER

from meshai.config.model import Connection
from meshai.errors import LinkDownError
from meshai.radio import interfaces
from meshai.radio.link import Inbound, LinkChange, LinkState, SendRequest

tcp_only = pytest.mark.parametrize("wire_kind", ["tcp"])
pty_only = pytest.mark.parametrize("wire_kind", ["pty"])


def request(link, text="hello"):
    return SendRequest(link.new_packet_id(), PEER, text)


async def test_closed_connection_becomes_one_loss(wire, up):
    """§5.3: the library would reconnect silently, with no event at all."""
    link, watcher = up
    wire.eof()
    await watcher.ups(2)
    states = [change.state for change in watcher.of(LinkChange)]
    assert states == [LinkState.CONNECTING, LinkState.UP, LinkState.DOWN, LinkState.CONNECTING, LinkState.UP]
    await link.send(request(link))
    assert await watcher.until(wire.texts)


async def test_broken_connection_is_rebuilt(wire, up):
    """RST, or the plug pulled and put back under another number."""
    _, watcher = up
    wire.break_off()
    await watcher.ups(2)
    assert (await watcher.change(LinkState.DOWN)).reason


async def test_node_away_for_a_while_is_awaited(wire, up):
    link, watcher = up
    await wire.refuse()
    await watcher.change(LinkState.DOWN)
    with pytest.raises(LinkDownError):
        await link.send(request(link))
    assert (link.node.num, link.peer(PEER).long_name) == (OWN, "Node b0b00002")
    await asyncio.sleep(0.2)
    await wire.come_back()
    await watcher.ups(2)


async def test_node_absent_at_start_is_no_error(wire, connect):
    """M12: dead after a boot without the node, with exit code 0."""
    await wire.refuse()
    link, watcher = await connect()
    await watcher.change(LinkState.DOWN)
    assert (link.node, link.must_restart()) == (None, "")
    await wire.come_back()
    await watcher.ups(1)


async def test_silent_node_is_noticed_by_the_probe(wire, connect):
    """A3: WiFi loss or hung firmware gives no event for minutes to for ever."""
    _, watcher = await connect(replace(FAST, probe_answer_s=0.15))
    await watcher.ups(1)
    wire.answers_heartbeat = False
    assert (await watcher.change(LinkState.DOWN)).reason == "the node does not answer any more"
    wire.answers_heartbeat = True
    await watcher.ups(2)


@tcp_only
async def test_old_firmware_lives_by_its_frames(wire, connect):
    """§5.3: before 2.7.4 a heartbeat has no answer."""
    wire.firmware, wire.answers_heartbeat = "2.6.11.60ec05e", False
    link, watcher = await connect(replace(FAST, probe_answer_s=0.02, frame_within_s=0.5))
    await watcher.ups(1)
    for number in range(10):
        await asyncio.sleep(0.05)
        wire.deliver("x", number + 1)
    assert link.status()["connections"] == 1
    assert (await watcher.change(LinkState.DOWN)).reason == "the node does not answer any more"


@tcp_only
async def test_talking_node_that_answers_no_heartbeat_is_kept(wire, connect):
    wire.answers_heartbeat = False
    link, watcher = await connect(replace(FAST, probe_answer_s=0.3, probe_every_s=0.02))
    await watcher.ups(1)
    for number in range(30):
        wire.deliver("x", number + 1)
        await asyncio.sleep(0.02)
    assert link.status()["connections"] == 1


async def test_reboot_frame_loses_no_mail(wire, up):
    """§2.5, §5.3: the library asks for the configuration again on an object that is about to be replaced."""
    _, watcher = up
    wire.backlog = []
    wire.say(rebooted=True)
    assert (await watcher.change(LinkState.DOWN)).reason == "the node rebooted"
    await watcher.ups(2)
    assert wire.connections == 2


async def test_silent_handshake_is_abandoned(wire, connect):
    wire.answers_config = False
    link, watcher = await connect(replace(FAST, silence_s=0.3))
    assert (await watcher.change(LinkState.DOWN)).reason == "the node accepts the connection but sends nothing"
    await watcher.until(lambda: link.status()["handshakes_failed"])
    wire.answers_config = True
    await watcher.ups(1)
    assert link.status()["handshakes_failed"] == 0


@tcp_only
async def test_endless_handshake_is_abandoned(wire, connect):
    wire.completes_config = False
    _, watcher = await connect(replace(FAST, handshake_s=0.4, silence_s=5.0))
    assert (await watcher.change(LinkState.DOWN)).reason.startswith("the node did not finish sending")


@tcp_only
async def test_connection_lost_within_the_handshake_is_named(wire, connect):
    wire.completes_config = False
    _, watcher = await connect()
    await watcher.until(lambda: wire.connections)
    wire.eof()
    assert (await watcher.change(LinkState.DOWN)).reason == "the node closed the connection"


async def test_half_a_frame_does_not_harm_the_next_connection(wire, up):
    """§5.3: a half frame in the library's buffer swallows my_info of the next configuration."""
    link, watcher = up
    wire.write(b"\x94\xc3\x00\x40half")
    wire.eof()
    await watcher.ups(2)
    assert link.node.num == OWN


async def test_noise_between_frames_is_skipped(wire, up):
    """§2.4: log text, damaged frames, and a packet that claims to come from nobody."""
    _, watcher = up
    wire.write(b"INFO | booting without a line end" * 50 + b"\x94\xc3\x00\x03\xff\xff\xff")
    wire.deliver("ghost", 5, sender=0)
    wire.deliver("real", 6)
    assert (await watcher.until(lambda: watcher.of(Inbound)))[0].text == "real"


@tcp_only
async def test_wrong_node_after_a_swap_is_named(wire, up, caplog):
    link, watcher = up
    wire.num = 0x0BADCAFE
    wire.eof()
    await watcher.ups(2)
    assert "another node answers" in watcher.of(LinkChange)[-1].reason
    assert "not !a11ce001 but !0badcafe" in caplog.text
    assert link.node.num == 0x0BADCAFE


@tcp_only
async def test_two_programs_fighting_are_named_and_backed_off(wire, connect, caplog):
    """§9.8: the other client takes over as soon as we connect."""
    link, watcher = await connect(replace(FAST, brief_s=5.0))
    caplog.set_level(logging.INFO, "meshai.radio")
    for number in range(1, 7):
        await watcher.ups(number)
        wire.eof()
    await watcher.until(lambda: "another program uses this node" in str(link.status()["last_error"]))
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    losses = [text for text in told if "lost" in text]
    assert len(losses) == len(set(losses))  # each reason once …
    assert len(told) <= 2 * len(losses) + 1  # … and that the node was back


@tcp_only
async def test_log_is_quiet_while_the_node_is_away(wire, connect, caplog):
    """A2: 8 MB of log in ten seconds."""
    await wire.refuse()
    _, watcher = await connect(replace(FAST, backoff_max_s=0.02))
    await watcher.until(lambda: len(watcher.of(LinkChange)) > 20)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert len(warnings) == 1
    assert "nothing listens there" in warnings[0]


@tcp_only
async def test_hundreds_of_nodes_are_received(wire, connect):
    wire.peers = [0x20000000 + number for number in range(250)]
    link, watcher = await connect()
    await watcher.ups(1)
    assert link.node.nodes_known == 251


@tcp_only
async def test_call_that_hangs_costs_the_connection_only(wire, connect, monkeypatch):
    """§3.6: any write may block for ever; its thread is abandoned."""
    link, watcher = await connect(replace(FAST, call_s=0.4, close_s=0.1))
    await watcher.ups(1)
    release = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(interfaces.TcpNode, "hand_over", lambda *_: release.wait(30))
        with pytest.raises(LinkDownError, match="hangs"):
            await link.send(request(link))
    await watcher.ups(2)
    assert link.status()["orphans"] == 1
    release.set()


@tcp_only
async def test_library_exit_costs_the_connection_only(up, monkeypatch):
    """§5.4: our_exit() raises SystemExit inside library calls."""
    link, watcher = up
    with monkeypatch.context() as patch:
        patch.setattr(interfaces.TcpNode, "hand_over", lambda *_: exit(1))
        with pytest.raises(LinkDownError, match="the library gave up"):
            await link.send(request(link))
    await watcher.ups(2)


@tcp_only
async def test_close_that_hangs_ends_as_stuck(wire, connect, monkeypatch):
    release = threading.Event()
    close = interfaces.TcpNode.close
    monkeypatch.setattr(interfaces.TcpNode, "close", lambda self: (release.wait(30), close(self)))
    link, watcher = await connect(replace(FAST, close_s=0.05, orphans=1))
    await watcher.ups(1)
    wire.eof()
    await watcher.ups(2)
    wire.eof()
    await watcher.change(LinkState.STUCK)
    assert link.must_restart() == "library threads do not end"
    release.set()
    await watcher.until(lambda: not any(t.name == "radio closer" for t in threading.enumerate()))


@tcp_only
async def test_failing_handshakes_ask_for_a_restart(wire, connect):
    wire.answers_config = False
    link, watcher = await connect(replace(FAST, silence_s=0.02, hopeless_times=3, hopeless_s=0.0))
    reason = await watcher.until(link.must_restart)
    assert reason == "3 handshakes failed in a row: the node accepts the connection but sends nothing"


@tcp_only
async def test_command_that_outlives_its_connection_says_link_down(wire, connect):
    link, watcher = await connect(replace(FAST, admin_gap_s=0.4))
    await watcher.ups(1)
    command = asyncio.create_task(link.set_favourite(PEER))
    await asyncio.sleep(0.05)
    wire.eof()
    await watcher.ups(2)
    with pytest.raises(LinkDownError):
        await command
    assert link.state is LinkState.UP


@tcp_only
async def test_long_handshake_is_no_hanging_supervisor(wire, connect):
    wire.answers_config = False
    link, watcher = await connect(replace(FAST, silence_s=5.0, slack_s=0.0))
    await watcher.change(LinkState.CONNECTING)
    await asyncio.sleep(0.3)
    assert (link.must_restart(), link.state) == ("", LinkState.CONNECTING)


@tcp_only
async def test_node_without_number_is_not_accepted(wire, connect):
    """§5.3: without my_info the library's object is useless, and the library says it is connected."""
    wire.num = 0
    link, watcher = await connect()
    assert (await watcher.change(LinkState.DOWN)).reason == "the node sent its configuration without its own number"
    assert link.node is None


@tcp_only
async def test_crashed_supervisor_is_logged_and_seen(wire, connect, monkeypatch, caplog):
    def fail(*_args, **_options):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("meshai.radio.device.Session", fail)
    link, watcher = await connect()
    assert await watcher.until(link.must_restart) == "the link supervisor ended"
    assert "can't start new thread" in caplog.text


@tcp_only
async def test_supervisor_that_ended_or_hangs_asks_for_a_restart(up):
    link, _ = up
    link._promised_by = time.monotonic() - 1
    assert link.must_restart() == "the link supervisor hangs"
    link._promised_by = float("inf")
    link._supervisor.cancel()
    await asyncio.wait({link._supervisor})
    assert link.must_restart() == "the link supervisor ended"


@pty_only
async def test_port_of_another_program_is_named(wire, connect):
    with serial.Serial(wire.connection.serial_port, exclusive=True):
        _, watcher = await connect()
        assert "held by another program" in (await watcher.change(LinkState.DOWN)).reason
    await watcher.ups(1)


@pty_only
async def test_file_that_is_no_port_is_named(connect, tmp_path):
    (tmp_path / "file").touch()
    _, watcher = await connect(connection=Connection(type="serial", serial_port=str(tmp_path / "file")))
    assert "not a serial port" in (await watcher.change(LinkState.DOWN)).reason


@tcp_only
async def test_unknown_host_is_explained(connect):
    _, watcher = await connect(connection=Connection(type="tcp", tcp_host="node.invalid"))
    assert "host name is unknown" in (await watcher.change(LinkState.DOWN)).reason


@pty_only
async def test_last_packet_may_leave_before_closing(connect):
    """§8: closing a serial node right after a send can lose the packet."""
    link, watcher = await connect(replace(FAST, linger_s=0.3))
    await watcher.ups(1)
    await link.send(request(link))
    began = time.monotonic()
    await link.stop()
    assert time.monotonic() - began >= 0.25
    assert watcher.of(LinkChange)[-1].state is LinkState.STOPPED


@tcp_only
async def test_jumped_clock_is_passed_on(wire, connect, up):
    """The network brings a Pi its time after boot; the node must get it, too."""
    link, watcher = up
    await watcher.until(wire.admin)
    before = len(wire.admin())
    await asyncio.sleep(0.3)
    assert len(wire.admin()) - before <= 1  # the same time is not sent with every probe
    now = time.time
    link._clock.now = lambda: now() + 3600
    await watcher.until(lambda: len(wire.admin()) >= before + 1)
