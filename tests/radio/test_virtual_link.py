"""The link against the virtual mesh: what the real firmware's rules do to a bot, and every fault of its port."""

import asyncio
from dataclasses import replace

import pytest
from support.wire_node import FAST, Watcher

from meshai.clock import SystemClock
from meshai.config.model import Connection
from meshai.errors import LinkDownError, NotOnAirError
from meshai.radio.link import Heard, Inbound, LinkChange, LinkState, Receipt, SendRequest
from meshai.radio.registry import open_link
from meshai.radio.virtual.mesh import Mesh
from meshai.radio.virtual.phone import Phone
from meshai.radio.virtual.pty import PtyPort
from meshai.radio.virtual.settings import NodeSettings
from meshai.radio.virtual.tcp import TcpPort

SPEED = 200.0
"""Protocol seconds per real one: a text's second on the air takes five milliseconds."""


class World:
    """A bot's node on a TCP port, a relay, and a person out of the bot's direct reach when ``far``."""

    def __init__(self):
        self.mesh = Mesh(seed=7, speed=SPEED)
        self.bot = self.mesh.add(NodeSettings(long_name="Bot"))
        self.relay = self.mesh.add(NodeSettings(long_name="Relay"))
        self.user = self.mesh.add(NodeSettings(long_name="Zoe"))
        self.mesh.link(self.bot, self.relay)
        self.mesh.link(self.relay, self.user)
        self.mesh.link(self.bot, self.user)
        self.mesh.introduce()
        self.phone = Phone(self.user)
        self.port = TcpPort(self.bot)
        self.links = []

    async def connect(self, timings=FAST):
        link = open_link(Connection(type="tcp", tcp_port=self.port.port), SystemClock(), timings)
        watcher = Watcher()
        self.links.append(link)
        await link.start(watcher)
        return link, watcher

    def request(self, link, text="hello", **fields):
        return SendRequest(link.new_packet_id(), self.user.num, text, **fields)


@pytest.fixture
async def world():
    built = World()
    built.mesh.start()
    await built.port.start()
    yield built
    for link in built.links:
        await link.stop()
    await built.port.stop()
    built.mesh.stop()
    await asyncio.sleep(0)


@pytest.fixture
async def up(world):
    link, watcher = await world.connect()
    await watcher.ups(1)
    return link, watcher


def fate(watcher, sent):
    """The first answer that is not implicit."""
    return watcher.until(
        lambda: next((r for r in watcher.of(Receipt) if r.packet_id == sent.packet_id and not r.implicit), None)
    )


async def test_question_arrives_authenticated(world, up):
    _, watcher = up
    await watcher.until(lambda: world.bot.clock() > 1_700_000_000)  # from now on packets have a date
    await world.phone.send_dm(world.bot, "what is a relay? ⚡")
    message = (await watcher.until(lambda: watcher.of(Inbound)))[0]
    assert (message.text, message.from_num, message.authenticated) == ("what is a relay? ⚡", world.user.num, True)
    assert (message.public_key, message.hops, message.is_dm) == (world.user.public_key, 0, True)
    assert watcher.of(Heard)[0].from_num == world.user.num


async def test_answer_is_delivered_with_a_real_receipt(world, up):
    link, watcher = up
    sent = world.request(link, "An answer.", public_key=world.user.public_key, reply_id=77, hop_limit=2)
    await link.send(sent)
    message = await world.phone.wait_for(lambda m: m.text == "An answer.")
    assert (message.packet_id, message.reply_id, message.pki) == (sent.packet_id, 77, True)
    assert (await fate(watcher, sent)).error == "NONE"


async def test_peer_behind_a_relay_gives_implicit_then_real(world, up):
    """§3.3: only the destination's own answer is delivery."""
    link, watcher = up
    world.mesh.unlink(world.bot, world.user)
    sent = world.request(link)
    await link.send(sent)
    receipt = await fate(watcher, sent)
    mine = [r for r in watcher.of(Receipt) if r.packet_id == sent.packet_id]
    assert (mine[0].implicit, mine[0].from_num, receipt.from_num) == (True, world.bot.num, world.user.num)


async def test_two_second_rule_is_reported_to_us(world, up):
    """§3.5: with ``from`` set the refusal comes back; the stock library never sees it."""
    link, watcher = up
    first, second = world.request(link, "one"), world.request(link, "two")
    await asyncio.gather(link.send(first), link.send(second))
    assert (await fate(watcher, second)).error == "RATE_LIMIT_EXCEEDED"
    assert (await fate(watcher, first)).error == "NONE"


async def test_text_that_is_too_long_for_pki_is_refused_by_the_node(world, up):
    link, watcher = up
    sent = world.request(link, "x" * 221)
    await link.send(sent)
    assert (await fate(watcher, sent)).error == "TOO_LARGE"


async def test_key_other_than_the_known_one_is_refused(world, up):
    """§3.1: the send-side pin."""
    link, watcher = up
    sent = world.request(link, public_key=bytes(32))
    await link.send(sent)
    assert (await fate(watcher, sent)).error == "PKI_FAILED"


async def test_peer_that_is_off_ends_in_max_retransmit(world, up):
    link, watcher = up
    world.user.switch_off()
    world.relay.switch_off()
    sent = world.request(link)
    await link.send(sent)
    assert (await fate(watcher, sent)).error == "MAX_RETRANSMIT"


async def test_node_gets_the_time(world, up):
    """§9.13: without a clock the node dates nothing."""
    _, watcher = up
    await watcher.until(lambda: world.bot.clock() > 1_700_000_000)


async def test_favourite_and_removal_take_effect(world, up):
    link, watcher = up
    await link.set_favourite(world.user.num)
    await watcher.until(lambda: world.bot.database.get(world.user.num).favourite)
    await link.remove_node(world.user.num)
    await watcher.until(lambda: world.user.num not in world.bot.database)
    await watcher.until(lambda: link.peer(world.user.num) is None)  # until its next NodeInfo (§9.1)
    world.user.modules.send_nodeinfo(at_once=True)
    await watcher.until(lambda: link.peer(world.user.num) is not None and link.peer(world.user.num).long_name == "Zoe")


async def test_own_telemetry_is_read(world, up):
    link, watcher = up
    await watcher.until(lambda: link.telemetry().channel_utilization_percent is not None)


async def test_messages_sent_meanwhile_wait_in_the_node(world):
    """§2.5: the node queues for an absent client."""
    for number in range(3):
        await world.phone.send_dm(world.bot, f"while you were away {number}")
        await asyncio.sleep(0.1)
    _, watcher = await world.connect()
    await watcher.until(lambda: len(watcher.of(Inbound)) == 3)
    assert all(message.backlog for message in watcher.of(Inbound))


async def settle_again(world, link, watcher, ups):
    """The link is up again and carries an answer to the person."""
    await watcher.ups(ups)
    await link.send(world.request(link, f"back {ups}"))
    await world.phone.wait_for(lambda m: m.text == f"back {ups}")


async def eof(world):
    world.port.drop()


async def rst(world):
    world.port.reset()


async def half_frame_and_silence(world):
    world.port.stall()


async def hung(world):
    world.port.mute()


async def refusing(world):
    world.port.refuse(0.2 * SPEED)


async def reboot(world):
    world.bot.reboot()


async def power_cut(world):
    world.bot.switch_off()
    await asyncio.sleep(0.2)
    world.bot.switch_on()


@pytest.mark.parametrize("fault", [eof, rst, half_frame_and_silence, hung, refusing, reboot, power_cut])
async def test_link_comes_back_after(world, fault):
    link, watcher = await world.connect(replace(FAST, probe_answer_s=0.2))
    await watcher.ups(1)
    await fault(world)
    down = await watcher.change(LinkState.DOWN)
    assert down.reason
    await settle_again(world, link, watcher, 2)


async def test_handshake_that_stops_half_way_is_repeated(world):
    world.port.hang_after = 5
    link, watcher = await world.connect(replace(FAST, silence_s=0.3))
    await watcher.change(LinkState.DOWN)
    world.port.hang_after = None
    await settle_again(world, link, watcher, 1)


async def test_silent_port_is_a_failed_handshake(world):
    world.port.silent = True
    link, watcher = await world.connect(replace(FAST, silence_s=0.3))
    await watcher.until(lambda: link.status()["handshakes_failed"])
    world.port.silent = False
    await settle_again(world, link, watcher, 1)


async def test_swapped_board_is_noticed(world, up):
    link, watcher = up
    world.port.swap(world.relay)
    await watcher.ups(2)
    assert link.node.num == world.relay.num
    assert f"not {world.bot.id} but {world.relay.id}" in watcher.of(LinkChange)[-1].reason


async def test_node_without_radio_refuses_instead_of_hanging(world):
    world.bot.free_zero = True
    link, watcher = await world.connect()
    await watcher.ups(1)
    await watcher.until(lambda: link.status()["queue_free"] == 0)
    with pytest.raises(NotOnAirError, match="queue full"):
        await link.send(world.request(link))
    world.bot.free_zero = False
    await link.send(world.request(link, "at last"))
    await world.phone.wait_for(lambda m: m.text == "at last")


async def test_stock_client_fighting_for_the_node_is_named(world):
    """§9.8: one client per node; the newest wins."""
    link, watcher = await world.connect(replace(FAST, brief_s=30.0))
    for number in range(1, 5):
        await watcher.ups(number)
        _, writer = await asyncio.open_connection("127.0.0.1", world.port.port)
        await watcher.until(lambda: link.state is not LinkState.UP)
        writer.close()
    await watcher.until(lambda: "another program uses this node" in str(link.status()["last_error"]))


async def test_receipts_survive_a_reconnect(world, up):
    """DESIGN §3 "After a crash": over TCP the same id sent again reaches the person once."""
    link, watcher = up
    sent = world.request(link, "once only")
    await link.send(sent)
    world.port.drop()
    await watcher.ups(2)
    await asyncio.sleep(0.1)
    await link.send(sent)
    assert (await fate(watcher, sent)).error == "NONE"
    await asyncio.sleep(0.1)
    assert [message.text for message in world.phone.received].count("once only") == 1


async def test_send_in_the_moment_of_a_loss_raises_cleanly(world, up):
    link, watcher = up
    world.port.reset()
    outcomes = await asyncio.gather(*(link.send(world.request(link)) for _ in range(3)), return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, LinkDownError) for outcome in outcomes)
    await watcher.ups(2)


@pytest.fixture(params=["uart bridge", "native usb"])
async def board(request, world, tmp_path):
    """The bot's node on a serial port as well."""
    port = PtyPort(world.bot, tmp_path / "usb-RAK", native_usb=request.param == "native usb")
    world.serial = Connection(type="serial", serial_port=str(tmp_path / "usb-RAK"))
    yield port
    port.stop()


async def serial_link(world, board, timings=FAST):
    board.start()
    link = open_link(world.serial, SystemClock(), timings)
    watcher = Watcher()
    world.links.append(link)
    await link.start(watcher)
    await watcher.ups(1)
    return link, watcher


async def serial_reboot(world, board):
    world.bot.reboot()


async def serial_replug(world, board):
    board.unplug()
    await asyncio.sleep(0.1)
    board.plug()


async def serial_hang(world, board):
    board.mute()
    await asyncio.sleep(0.5)
    world.bot.reboot()


async def serial_reboot_loop(world, board):
    world.bot.reboot_loop(4)


@pytest.mark.parametrize("fault", [serial_reboot, serial_replug, serial_hang, serial_reboot_loop])
async def test_serial_link_comes_back_after(world, board, fault):
    link, watcher = await serial_link(world, board, replace(FAST, probe_answer_s=0.15, silence_s=0.3))
    await fault(world, board)
    assert (await watcher.change(LinkState.DOWN)).reason
    await watcher.until(lambda: link.state is LinkState.UP and world.bot.on)
    async with asyncio.timeout(8):
        while True:
            try:
                await link.send(world.request(link, "back on serial"))
                await world.phone.wait_for(lambda m: m.text == "back on serial", 1.0)
                break
            except (LinkDownError, TimeoutError):  # the loop of reboots went on
                await asyncio.sleep(0.05)


async def test_conversation_over_a_serial_port(world, board):
    link, watcher = await serial_link(world, board)
    await world.phone.send_dm(world.bot, "over the cable")
    message = (await watcher.until(lambda: watcher.of(Inbound)))[0]
    assert (message.text, message.authenticated) == ("over the cable", True)
    sent = world.request(link, "and back", public_key=message.public_key)
    await link.send(sent)
    assert (await fate(watcher, sent)).error == "NONE"
