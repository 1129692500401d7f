"""Protocol time, by hand and on the event loop."""

import asyncio

import pytest

from meshai.radio.virtual import LoopTimeline, Timeline


def test_actions_run_in_order_of_their_time():
    line, seen = Timeline(), []
    line.after(2, lambda: seen.append(("b", line.now())))
    line.after(1, lambda: (seen.append(("a", line.now())), line.after(0.5, lambda: seen.append(("c", line.now())))))
    line.advance(1.9)
    line.advance(1.1)
    assert (seen, line.now()) == ([("a", 1.0), ("c", 1.5), ("b", 2.0)], 3.0)


def test_cancelled_action_never_runs():
    line, seen = Timeline(), []
    line.after(1, lambda: seen.append(1)).cancel()
    line.advance(2)
    assert seen == []


async def test_loop_runs_faster_than_life():
    line, done = LoopTimeline(speed=1000), asyncio.Event()
    line.after(20, done.set)  # scheduled before time flows
    line.start()
    await asyncio.wait_for(done.wait(), 5)
    assert line.now() >= 20
    line.stop()
    stopped = line.now()
    await asyncio.sleep(0.01)
    assert line.now() == stopped


async def test_late_loop_keeps_the_order():
    """A blocked loop catches up: each action sees the time it was due, not the time it ran."""
    line, seen = LoopTimeline(speed=1000), []
    line.start()
    for delay in (3, 1, 2):
        line.after(delay, lambda: seen.append(line.now()))
    start = line.now()
    await asyncio.sleep(0.02)
    assert [round(at - start) for at in seen] == [1, 2, 3]
    line.stop()


def test_speed_must_be_positive():
    with pytest.raises(ValueError, match="positive"):
        LoopTimeline(0)
