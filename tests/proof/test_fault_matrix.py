"""Every fault at every moment: each question gets exactly one whole answer, or an honest notice, or waits as held.

A part shows twice on a phone only where the node itself had reported it lost (its ACKs never came back): nobody can
tell the two apart (docs/protocol.md §3.3). The matrix is printed at the end of the run.
"""

import asyncio
import collections
import contextlib
import re

import pytest
from support.proof_world import Reply, words

from meshai.delivery.writer import BROKEN_OFF, CUT_BY_RESTART
from meshai.radio.link import Receipt
from meshai.radio.virtual import Fate, Link, packets
from meshai.radio.virtual.frame import BROADCAST, TEXT

pytestmark = pytest.mark.slow

LONG = words("Q1", 60)  # three parts
ARRIVED = "SELECT count(*) FROM inbound WHERE content = 'Q1?'"
TRACE = "SELECT answer_id, part, packet_id, state, reason, attempts FROM outbound ORDER BY id"
NOTICES = ("language model", BROKEN_OFF, CUT_BY_RESTART)


# -- faults: each begins at once and heals by itself ----------------------------------------------------------------


async def eof(world):
    world.port.drop()


async def rst(world):
    world.port.reset()


async def refuse(world):
    world.port.refuse(40.0)


async def hang(world):
    world.port.mute()


async def node_reboot(world):
    world.bot.reboot()


async def duplicates(world):
    """From now on the node says everything twice, and repeats what it has said before."""
    put = world.bot.to_phone.put
    for packet in list(world.told):
        put(packet)
    world.bot.to_phone.put = lambda packet: (put(packet), put(packet))


async def lost_acks(world):
    """The person hears the bot, the bot hears nothing, for two of the firmware's three tries."""
    world.mesh.link(world.zoe.node, world.bot, Link(loss=1.0), both_ways=False)
    await world.pass_time(18)
    world.mesh.link(world.zoe.node, world.bot, both_ways=False)


async def no_acks(world):
    """The same for longer than the firmware tries: the node says MAX_RETRANSMIT although the part arrived."""
    world.mesh.link(world.zoe.node, world.bot, Link(loss=1.0), both_ways=False)
    await world.pass_time(45)
    world.mesh.link(world.zoe.node, world.bot, both_ways=False)


async def peer_off(world):
    """MAX_RETRANSMIT, again, held; after a while its node is back and introduces itself."""
    world.zoe.node.switch_off()
    await world.pass_time(90)
    world.zoe.node.switch_on()


async def full_queue(world):
    """The channel is taken, the node's queue full; then the node talks for so long that it misses some ACKs."""
    world.bot.radio.jammed = True
    for number in range(16):
        packet = packets.text(BROADCAST, f"noise {number}", channel=0, want_ack=False)
        packet.hop_limit = 0
        world.bot.send(packet)
    await world.pass_time(20)
    world.bot.radio.unjam()


async def daemon_restart(world):
    await world.restart()


LINK_FAULTS = [
    eof, rst, refuse, hang, node_reboot, duplicates, lost_acks, no_acks, peer_off, full_queue, daemon_restart,
]  # fmt: skip


# -- moments: each strikes once, and returns when the question is with the daemon -------------------------------------


async def idle(world):
    """A person asks once more when the app says "not delivered", or when nothing comes for some minutes.

    The second happens where the node gave the packet to a socket whose reader was just leaving (§2.5): nobody has it.
    """
    await world.strike()
    await world.until(lambda: world.zoe.node.on)
    asked = await world.zoe.send_dm(world.bot, "Q1?")
    with contextlib.suppress(TimeoutError):
        await world.until(lambda: asked.fate is Fate.FAILED or world.value(ARRIVED), timeout_s=5.0)
    if not world.value(ARRIVED):
        assert asked.fate is Fate.FAILED or world.case.fault is daemon_restart, "lost between node and daemon"
        await asyncio.gather(*world.case.tasks)
        await world.up()
        await world.zoe.send_dm(world.bot, "Q1?")


async def question_just_stored(world):
    """The first commit is done, the model not asked yet."""
    await world.ask("Q1?")
    assert not world.server.requests
    await world.strike()


async def model_answering(world):
    gate = asyncio.Event()
    world.replies = [Reply(LONG, wait=gate)]
    await world.ask("Q1?")
    await world.server.wait_for_requests(1)
    await world.strike()
    gate.set()


async def between_parts(world):
    """The first part is confirmed, the second about to be handed over."""
    struck = asyncio.Event()

    async def before(_request):
        if len(world.handed) == 1 and not struck.is_set():
            struck.set()
            await world.strike()

    world.before_send = before
    await world.zoe.send_dm(world.bot, "Q1?")
    await world.until(struck.is_set)


async def waiting_for_receipt(world):
    """The second part was handed over, nothing came back yet."""
    struck = asyncio.Event()

    async def after(_request):
        if len(world.handed) == 2 and not struck.is_set():
            struck.set()
            await world.strike()

    world.after_send = after
    await world.zoe.send_dm(world.bot, "Q1?")
    await world.until(struck.is_set)


MOMENTS = [idle, question_just_stored, model_answering, between_parts, waiting_for_receipt]


# -- the judgement ------------------------------------------------------------------------------------------------


class Case:
    """One fault at one moment in a world of its own."""

    def __init__(self, world, fault):
        self.world, self.fault, self.tasks = world, fault, []
        world.told, world.replies, world.strike, world.case = collections.deque(maxlen=50), [], self.strike, self
        world.server.rule = lambda prompt: world.replies.pop() if world.replies else reply_to(prompt)
        self._record()

    def _record(self):
        put = self.world.bot.to_phone.put

        def recording(packet):
            if packet.decoded.portnum == TEXT:
                self.world.told.append(packet)
            put(packet)

        self.world.bot.to_phone.put = recording

    async def strike(self):
        """Begin the fault and let it take hold."""
        self.tasks.append(asyncio.create_task(self.fault(self.world)))
        await asyncio.sleep(0.01)

    async def healed(self):
        """The fault is over and everything it left is settled; what is held waits for the node to be heard."""
        await asyncio.gather(*self.tasks)
        await self.world.up()
        world = self.world
        await world.until(lambda: world.value(ARRIVED))
        await world.quiet()
        if world.value("SELECT count(*) FROM outbound WHERE state = 'held'"):
            await world.zoe.send_channel("on air again")  # heard, and no question
            await world.until(lambda: not world.value("SELECT count(*) FROM outbound WHERE state = 'held'"))
            await world.quiet()


def reply_to(prompt):
    return words("Q2", 8) if "Q2" in prompt.last else LONG


def judge(world, name, count, since=0):
    """What the person saw of an answer: whole once, whole with a part again, a notice, or what is wrong with it."""
    said = world.said(since=since)
    seen = collections.Counter(re.findall(rf"{name}w\d+", said))
    again = sum(1 for times in seen.values() if times > 1)
    if again and (not_excused(world) or max(seen.values()) > 2):
        return f"DOUBLED {again} words: {world.rows(TRACE)} {[m[:12] for m in world.texts()]}"
    if len(seen) == count:
        return f"whole, {'part again' if again else 'once'}"
    if any(notice in said for notice in NOTICES):
        return "notice"
    return f"LOST {count - len(seen)} of {count} words"


def not_excused(world):
    """Parts that went out again although the node had not reported MAX_RETRANSMIT for their first copy."""
    lost = {event.packet_id for event in world.events if isinstance(event, Receipt) and event.error == "MAX_RETRANSMIT"}
    parts = collections.defaultdict(list)
    for answer_id, part, packet_id, *_ in world.rows(TRACE):
        parts[answer_id, part].append(packet_id)
    return [part for part, ids in parts.items() if not set(ids[:-1]) <= lost]


async def run_case(world, case, moment):
    await moment(world)
    await case.healed()
    world.before_send = world.after_send = no_hook
    outcome = judge(world, "Q1", 60)
    world.server.rule = reply_to
    seen = len(world.zoe.received)
    await world.answer("Q2?")
    if (after := judge(world, "Q2", 8, seen)) != "whole, once":
        return f"{outcome}; afterwards {after}"
    states = world.rows("SELECT state, count(*) FROM inbound GROUP BY state")
    return outcome if states == [("answered", 2)] else f"{outcome}; questions {states}"


async def no_hook(_request):
    return None


async def row(build, matrix, fault, moments, one):
    """The moments of one fault, each in a world of its own, side by side; writes the matrix and returns its row."""
    outcomes = await asyncio.gather(*(one(build, fault, moment) for moment in moments), return_exceptions=True)
    made = {moment.__name__: str(outcome) or repr(outcome) for moment, outcome in zip(moments, outcomes, strict=True)}
    matrix.update({(fault.__name__, moment): outcome for moment, outcome in made.items()})
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return made


async def link_case(build, fault, moment):
    waiting = {"burst_wait_s": 20.0} if moment is question_just_stored else {}
    world = await build(loss=0.02, seed=11, reply=waiting)
    return await run_case(world, Case(world, fault), moment)


@pytest.mark.parametrize("fault", LINK_FAULTS, ids=lambda f: f.__name__)
async def test_fault_of_link_or_air(build, matrix, fault):
    """M13, A3, Z-A: no question and no part is lost, none is doubled."""
    outcomes = await row(build, matrix, fault, MOMENTS, link_case)
    assert set(outcomes.values()) <= {"whole, once", "whole, part again"}, outcomes


def model_500(said):
    return Reply(LONG, break_after=said) if said else Reply.error(500)


def model_hang(said):
    return Reply(LONG, hang_after=said) if said else Reply(hang=True)


SAID = {idle: 0, question_just_stored: 0, model_answering: 5, between_parts: 40, waiting_for_receipt: 60}
"""Words the model still says at each moment; the first part is final after some 25."""


async def model_case(build, fault, moment):
    waiting = {"burst_wait_s": 20.0} if moment is question_just_stored else {}
    world = await build(seed=11, reply=waiting, endpoint={"timeout_s": 1.0})
    case = Case(world, nothing)
    first = LONG if SAID[moment] == 60 else fault(SAID[moment])
    replies = [first]
    world.server.rule = lambda _prompt: replies.pop() if replies else fault(0)
    return await run_case(world, case, ask_only)


async def nothing(_world):
    return None


async def ask_only(world):
    await world.ask("Q1?")


@pytest.mark.parametrize("fault", [model_500, model_hang], ids=lambda f: f.__name__)
async def test_fault_of_the_model(build, matrix, fault):
    """A12, Z-M9: the person is told in one packet, or the answer says that it broke off."""
    outcomes = await row(build, matrix, fault, MOMENTS, model_case)
    assert list(outcomes.values()) == ["notice"] * 4 + ["whole, once"]
