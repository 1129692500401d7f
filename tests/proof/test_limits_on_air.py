"""Many people, other bots, and people nobody wants to hear (DESIGN §3 Limits)."""

import asyncio
import collections

import pytest
from support.inbox_world import dm
from support.proof_world import words
from support.station import Station

from meshai.conversation import throttle
from meshai.conversation.front import BUSY
from meshai.radio.virtual import packets

PEOPLE, QUESTIONS = 30, 5


# -- thirty people at once ----------------------------------------------------------------------------------------


def someone(number):
    return f"!0000a{number:03x}"


async def everybody_asks(station):
    """Five questions of each of thirty people, handed in while the model thinks about the first."""
    station.model.gate.clear()
    for round_number in range(QUESTIONS):
        for number in range(PEOPLE):
            packet = dm(
                f"Person {number} asks {round_number}", node=someone(number), key=bytes([number + 1] * 32),
                packet_id=1 + round_number,
            )  # fmt: skip
            await station.daemon.reception.handle(packet)


@pytest.fixture
async def station(tmp_path, request):
    limits = {"per_node_per_hour": 100, "per_hour": 1000} | getattr(request, "param", {})
    made = Station(tmp_path / "meshai.db", limits=limits, airtime={"budget_percent": 100.0})
    await made.start()
    yield made
    await made.stop()


async def served(station):
    """Who was answered, in the order the model was asked, repeats of a restarted question left out."""
    station.model.gate.set()
    await station.quiet()
    order = []
    for request in station.model.requests:
        who = request.messages[-1].content.split("Person ")[-1].split(" ")[0]
        if not order or order[-1] != who:
            order.append(who)
    return order


@pytest.mark.parametrize("station", [{"queue": 200}], indirect=True)
async def test_nobody_gets_a_second_answer_before_everybody_has_one(station):
    """E.2 7: round robin between persons, one at a time for each."""
    await everybody_asks(station)
    order = await served(station)
    assert order[:PEOPLE] == [str(number) for number in range(PEOPLE)]
    assert set(await station.states()) == {"answered"}
    asked = [request.messages[-1].content for request in station.model.requests]
    assert all(f"Person {n} asks {q}" in " ".join(asked) for n in range(PEOPLE) for q in range(QUESTIONS))


async def test_full_queue_says_busy_once_to_each_and_serves_the_rest(station):
    """S0-9: bounded; whom it cannot serve it tells so, once an hour."""
    await everybody_asks(station)
    turns = [turn for lane in station.daemon.responder._lanes.values() for turn in lane.waiting]
    assert len(turns) <= 20, "an answer serves up to four questions of one person"
    order = await served(station)
    busy = collections.Counter(request.to_num for request in station.link.sent if BUSY in request.text)
    answered = {request.to_num for request in station.link.sent if BUSY not in request.text}
    assert set(busy.values()) == {1}
    assert len(answered | set(busy)) == PEOPLE, "everybody hears something"
    assert len(answered) >= 20
    assert order[0] == "0"
    assert set(await station.states()) == {"answered", "ignored"}


async def test_thirty_people_on_the_air_are_all_answered(build):
    """The same over air, TCP and HTTP: everybody gets every question answered, and nobody waits for all the others."""
    world = await build(
        people=PEOPLE, radio={"preset": "SHORT_FAST"}, limits={"queue": 150}, reply={"spacing_s": 3.0, "ttl_s": 1800.0}
    )
    world.server.rule = lambda prompt: " ".join(
        line for line in prompt.last.split("\n") if line.startswith("Person ")
    )  # fmt: skip
    for question in range(QUESTIONS):
        for number, phone in enumerate(world.phones):
            await phone.send_dm(world.bot, f"Person {number} asks {question}")
    await world.until(lambda: world.value("SELECT count(*) FROM inbound") == PEOPLE * QUESTIONS)
    await world.quiet()
    for number, phone in enumerate(world.phones):
        said = world.said(phone)
        assert all(f"Person {number} asks {q}" in said for q in range(QUESTIONS)), said
    order = [request.to_num for request in world.handed]
    first_of_the_last = max(order.index(phone.num) for phone in world.phones)
    assert max(collections.Counter(order[:first_of_the_last]).values()) <= 3


# -- other bots ---------------------------------------------------------------------------------------------------


async def until_silent(world, phone, most):
    """Let them talk until nothing is said for two minutes of the mesh."""
    while True:
        said = len(world.texts(phone))
        assert said <= most, world.texts(phone)
        await world.pass_time(120)
        if len(world.texts(phone)) == said:
            return said


def echoing(world, phone):
    """A bot that answers every message with the same words."""

    def answer(message):
        if message.from_num == world.bot.num and not message.emoji:
            asyncio.get_running_loop().create_task(phone.send_dm(world.bot, message.text))

    phone.on_message = answer


@pytest.mark.parametrize(
    "answer", ["Pong!", words("long", 60), "[1/1] I am a bot, too"], ids=["same text", "part marks", "bot mark"]
)
async def test_echo_is_silenced_after_at_most_eight_packets(build, monkeypatch, answer):
    """A10, A.3: two bots end by themselves, and for a while only (here: 4 minutes)."""
    monkeypatch.setattr(throttle, "SILENCE_S", 240.0)
    world = await build()
    world.server.rule = lambda _prompt: answer
    echoing(world, world.zoe)
    await world.zoe.send_dm(world.bot, "Hello, bot")
    assert await until_silent(world, world.zoe, 8) >= 1
    assert world.value("SELECT count(*) FROM inbound WHERE reason = 'loop'") >= 1
    world.zoe.on_message = None
    await world.pass_time(240)
    world.server.rule = lambda _prompt: "Welcome back."
    assert "Welcome back." in await world.answer("Are you talking to me again?")


async def test_two_daemons_fall_silent(build):
    """A.3: two bots called ai trigger each other."""
    world = await build(people=1)
    node = world.zoe.node
    world.zoe.close()
    other = await build(guest_of=world, node=node)
    for bot in (world, other):
        bot.server.rule = lambda _prompt: words("talk", 60)
    packet = packets.text(world.bot.num, "Hello from the other side", channel=0, want_ack=True)
    packet.hop_limit = 3
    node.send(packet)
    sent = -1
    while sent != (sent := len(world.handed) + len(other.handed)):
        await world.pass_time(150)
    assert len(world.handed) <= 8, [request.text[:14] for request in world.handed]
    assert len(other.handed) <= 8, [request.text[:14] for request in other.handed]
    assert sum(bot.value("SELECT count(*) FROM inbound WHERE reason = 'loop'") for bot in (world, other)) >= 1


# -- one notice per state and hour, silence for the blocked -----------------------------------------------------------


async def test_rate_is_told_once_an_hour(build):
    world = await build(limits={"per_node_per_hour": 2, "per_hour": 100})
    for number in range(6):
        await world.answer(f"Question {number}")
    assert [text for text in world.texts() if "one hour" in text] == [
        "That was a lot in one hour. I answer you again when the hour is over."
    ]
    assert len(world.texts()) == 3


async def test_blocked_node_gets_silence_until_it_is_unblocked(build):
    """E.2 4: no answer, no notice, no packet at all."""
    world = await build(people=2)
    owner, pest = world.phones
    world.sections["access"] = {"admins": [owner.node.id]}
    await world.restart()
    await world.up()
    await world.answer("!whoami", owner)
    await world.answer(f"!admin block {pest.node.id}", owner)
    sent = await pest.send_dm(world.bot, "Can you hear me?")
    await pest.settled(sent)
    await pest.send_dm(world.bot, "!help")
    await world.pass_time(60)
    assert world.texts(pest) == []
    assert world.server.requests == []
    await world.answer(f"!admin unblock {pest.node.id}", owner)
    assert await world.answer("And now?", pest)
