"""Faults of the node and of the air while people talk: nothing lost, nothing twice."""

import asyncio

from meshai.llm.scripted import Reply
from meshai.radio.link import LinkState

LONG = " ".join(f"Sentence number {n} says something about the weather on the mountain." for n in range(1, 8))


async def test_node_without_a_clock_is_no_obstacle(build, monkeypatch):
    """§9.13: rx_time is 0 then; a message is as old as it arrives."""
    world = await build()
    monkeypatch.setattr(type(world.stage.virtual.bot), "clock", lambda node: 0)
    world.server.rule = lambda prompt: "Answer."
    assert await world.ask(world.alice, "Hello?") == "Answer."
    assert world.value("SELECT state FROM inbound") == "answered"


async def test_reboot_of_the_node_while_answering_costs_nothing(world):
    gate = asyncio.Event()
    world.server.reply(Reply(LONG, wait=gate))
    seen_before = world.stage.virtual.bot.boots
    await world.send(world.alice, "Tell me about the weather.")
    await world.server.wait_for_requests(1)
    world.stage.virtual.bot.reboot()
    await world.until(lambda: world.daemon.link.state is not LinkState.UP)
    gate.set()
    await world.until(lambda: len(world.messages(world.alice)) == 3)
    await world.quiet()
    assert world.stage.virtual.bot.boots == seen_before + 1
    assert world.rows("SELECT part, state FROM outbound ORDER BY part") == [
        (1, "delivered"), (2, "delivered"), (3, "delivered"),
    ]  # fmt: skip
    assert len(world.server.requests) == 1


async def test_reboot_between_two_parts_doubles_nothing(build):
    world = await build(reply={"spacing_s": 0.5})
    world.server.reply(LONG)
    await world.send(world.alice, "Tell me about the weather.")
    await world.until(lambda: len(world.messages(world.alice)) == 1)
    world.stage.virtual.bot.reboot()
    await world.until(lambda: len(world.messages(world.alice)) >= 3)
    await world.quiet()
    assert [m.text[:2] for m in world.messages(world.alice)] == ["[1", "[2", "[3"]


async def test_dm_that_waited_in_the_node_is_answered_after_the_restart(world):
    """protocol.md §2.5: the node keeps packets for an absent client."""
    await world.stage.stop_bot()
    sent = await world.alice.send_dm(world.stage.bot, "Anybody there?")
    await world.alice.settled(sent)
    world.server.rule = lambda prompt: "Here I am."
    await world.stage.start_bot()
    await world.until(lambda: world.heard(sent))
    await world.quiet()
    assert world.text(world.alice) == "Here I am."


async def test_link_cut_by_the_port_is_taken_up_again(world):
    world.stage.virtual.port.reset()
    await world.until(lambda: world.daemon.link.state is not LinkState.UP)
    world.server.rule = lambda prompt: "Back."
    assert await world.ask(world.alice, "Hello?") == "Back."


async def test_person_who_left_gets_the_answer_when_heard_again(build):
    world = await build()
    virtual = world.stage.virtual
    for other in (virtual.relay, world.bob.node):  # nobody repeats it: the packet is known to be lost
        virtual.mesh.unlink(virtual.bot, other)
    gate = asyncio.Event()
    world.server.reply(Reply("Here is the answer.", wait=gate))
    await world.send(world.alice, "What is a relay?")
    await world.server.wait_for_requests(1)
    world.alice.node.switch_off()
    gate.set()
    await world.until(lambda: world.value("SELECT count(*) FROM outbound WHERE state = 'held'") == 1, 30.0)
    world.alice.node.switch_on()
    await world.alice.send_channel("back again")
    await world.until(lambda: "Here is the answer." in world.text(world.alice), 30.0)


async def test_lossy_air_delivers_every_answer_once(build):
    """Firmware repeats and its duplicates: no answer is shown twice."""
    world = await build(loss=0.1, seed=3)
    world.server.rule = lambda prompt: f"Answer to {prompt.last.split()[-1]}"
    for number in range(5):
        await world.ask(world.alice, f"Question {number}")
    texts = [m.text.split("\n")[0] for m in world.messages(world.alice)]
    assert len(texts) == len(set(texts))
    assert len(world.server.requests) == 5
