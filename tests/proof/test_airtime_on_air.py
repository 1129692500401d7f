"""The governor on a real link: budget, busy channel, duty cycle, and a ledger that outlives the daemon."""

import pytest
from support.proof_world import words

from meshai.radio.link import Alert, Receipt

SPENT = "I have used my share of the air for now."


async def test_spent_budget_is_told_once_and_commands_still_answer(build):
    """E.2 8: each person is told once an hour when to ask again; nobody pays for that with a model call."""
    world = await build(people=2, airtime={"budget_percent": 0.1})  # 3.6 s of an hour
    first, second = world.phones
    world.server.rule = lambda _prompt: words("air", 18)
    await world.answer("Tell me something.", first)
    for number in range(3):
        await world.answer(f"And more, please: {number}", first)
    assert sum(text.startswith(SPENT) for text in world.texts(first)) == 1
    assert len(world.texts(first)) == 2
    await world.answer("May I?", second)
    assert world.texts(second)[0].startswith(SPENT)
    assert len(world.server.requests) == 1
    assert "!help" not in await world.answer("!ping", first)
    assert len(world.texts(first)) == 3, "a command reply is exempt"
    await world.restart()
    await world.up()
    seen = len(world.texts(first))
    await world.answer("Now?", first)
    assert len(world.texts(first)) == seen, "a restart is no new hour"


async def test_ledger_survives_a_restart(build):
    """D.2 5: per node and day, in the database; the rolling hour is read back."""
    world = await build(people=2)
    for phone in world.phones:
        await world.answer("Hello", phone)
    before = (await world.control("status"))["delivery"]["airtime"]
    await world.restart()
    await world.up()
    after = (await world.control("status"))["delivery"]["airtime"]
    assert before["today"]["airtime_ms"] == after["today"]["airtime_ms"] > 0
    assert set(after["today"]["by_node"]) == {phone.node.id for phone in world.phones}
    assert after["used_ms"] == pytest.approx(before["used_ms"], rel=0.05)
    assert "air" in (await world.answer("!status")).lower()


def busy(world, percent, seconds):
    """Others talk for so long: the node's channel utilisation rises."""
    world.bot.radio.log.received(world.mesh.timeline.now() + seconds - 60, percent * 0.6)


async def told(world, wanted):
    """The node's telemetry, each minute, brought the figure to the daemon."""
    await world.until(lambda: wanted(world.link.telemetry().channel_utilization_percent or 0.0))


async def test_busy_channel_holds_answers_but_no_command_replies(build):
    """E.2 8: above hold_at_percent nothing but command replies; the answer is held, not lost, and comes later."""
    world = await build(airtime={"slow_at_percent": 25, "hold_at_percent": 40})
    busy(world, 60, 400)
    await told(world, lambda use: use >= 40)
    await world.ask("What is the weather?")
    await world.until(lambda: world.value("SELECT count(*) FROM outbound WHERE state = 'held'"))
    assert world.texts() == []
    assert await world.answer("!whoami"), "a command reply is exempt"
    await told(world, lambda use: use < 25)
    await world.zoe.send_channel("back on the air")
    await world.until(lambda: any("question) OK" in text for text in world.texts()))
    assert len(world.server.requests) == 1


async def test_busy_channel_shortens_answers_before_the_model_is_asked(build):
    """D.1 7: above slow_at_percent one part, and the model is told the room it has."""
    world = await build(airtime={"slow_at_percent": 25, "hold_at_percent": 100})
    world.server.rule = lambda _prompt: "word " * 120
    await world.answer("Tell me everything.")
    quiet_parts = len(world.texts())
    busy(world, 30, 400)
    await told(world, lambda use: use >= 25)
    await world.answer("And again.")
    assert (quiet_parts, len(world.texts()) - quiet_parts) == (3, 1)
    quiet, crowded = (request.body for request in world.server.requests)
    limits = [body.get("max_tokens") or body.get("max_completion_tokens") for body in (quiet, crowded)]
    assert limits[1] < limits[0] / 2


async def test_duty_cycle_refusal_waits_what_the_node_says(build):
    """§3.2: NAK DUTY_CYCLE_LIMIT and "You can send again in 1 mins"; the same text goes out then, once."""
    world = await build(radio={"region": "EU_868"})
    world.bot.modules._timers[1].cancel()  # no telemetry: the daemon learns it from the refusal alone
    world.bot.radio.log.sent(world.mesh.timeline.now() - 3560, 400.0)
    await world.ask("Hello?")
    await world.until(lambda: any(isinstance(event, Alert) for event in world.events))
    refused_at = world.clock.monotonic()
    assert any(isinstance(e, Receipt) and e.error == "DUTY_CYCLE_LIMIT" for e in world.events)
    await world.until(lambda: world.daemon.governor.status()["silent_for_s"] > 50)
    await world.until(world.texts)
    assert world.clock.monotonic() - refused_at > 55, "as long as the node said"
    await world.quiet()
    assert len(world.texts()) == 1
    assert len(world.handed) == 2
    assert world.value("SELECT parts_failed FROM nodes WHERE node_id = ?", world.zoe.node.id) == 0
