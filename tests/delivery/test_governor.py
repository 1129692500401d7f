"""Airtime (DESIGN §3 Airtime; docs/protocol.md §4)."""

from __future__ import annotations

import pytest

from meshai.config.model import Airtime
from meshai.delivery import timing
from meshai.delivery.governor import Governor, RollingHour
from meshai.radio.link import NodeInfo, Telemetry
from meshai.storage import airtime as ledger

ANNA, BEN = "!0000a001", "!0000b002"
LONG = " ".join(f"Sentence number {n} tells something about radios." for n in range(10))
PRESETS = [
    ("SHORT_TURBO", 500, 7, 5, 94), ("SHORT_FAST", 250, 7, 5, 189), ("MEDIUM_FAST", 250, 9, 5, 601),
    ("LONG_FAST", 250, 11, 5, 1993), ("LONG_MODERATE", 125, 11, 8, 7410), ("LONG_SLOW", 125, 12, 8, 13246),
]  # fmt: skip


def node(bandwidth=250.0, factor=11, rate=5, **kwargs) -> NodeInfo:
    return NodeInfo(num=1, bandwidth_khz=bandwidth, spreading_factor=factor, coding_rate=rate, **kwargs)


def governor(clock, *, use=None, air=None, region="US", **settings) -> Governor:
    return Governor(
        lambda: Airtime(**settings), clock, node=lambda: node(region=region), telemetry=lambda: Telemetry(use, air)
    )


@pytest.mark.parametrize(("name", "bandwidth", "factor", "rate", "expected"), PRESETS)
def test_time_on_air_is_that_of_the_table(name, bandwidth, factor, rate, expected):
    ms = timing.text_airtime_ms(node(bandwidth, factor, rate), 200, pki=True)
    assert ms == pytest.approx(expected, abs=1.5), name


def test_receipt_timeout_covers_every_retransmission():
    """§3.7: LONG_FAST waits 9.9 s between tries; 5 tries and 30 s."""
    direct = timing.receipt_timeout_s(node(), 1993, 0, 0)
    assert 75 < direct < 90
    assert timing.receipt_timeout_s(node(), 1993, 3, 60) > direct


def test_hour_rolls():
    hour = RollingHour()
    hour.add(0, 1000)
    hour.add(1800, 500)
    assert hour.used_ms(3599) == 1500
    assert hour.used_ms(3601) == 500
    assert hour.free_in_s(3601, 600, 1000) == pytest.approx(1799)
    assert hour.free_in_s(3601, 9000, 1000) == 3600
    assert hour.used_ms(9999) == 0


@pytest.mark.parametrize(
    ("hops", "snr", "use", "parts", "reason"),
    [
        (0, 6.0, None, 3, ""),
        (2, None, 24.0, 3, ""),
        (None, None, None, 3, ""),
        (3, None, 0.0, 2, "far"),
        (4, None, 0.0, 2, "far"),
        (5, None, 0.0, 1, "far"),
        (0, None, 25.0, 1, "busy"),
        (0, -16.0, 0.0, 2, "weak"),
    ],
)
def test_distance_and_traffic_decide_the_length(clock, hops, snr, use, parts, reason):
    allowed = governor(clock, use=use).allowance(hops=hops, snr=snr, max_parts=3)
    assert (allowed.parts, allowed.reason) == (parts, reason)


def test_past_half_the_budget_one_part(clock):
    asked = governor(clock)
    asked.booked(91_000)
    assert asked.allowance(hops=0, max_parts=3).parts == 1


def test_spent_budget_says_when_to_ask_again(clock):
    asked = governor(clock)
    asked.booked(179_500)
    clock.advance(600)
    allowed = asked.allowance(hops=0, max_parts=3)
    assert (allowed.parts, allowed.reason) == (0, "budget")
    assert allowed.again_in_s == pytest.approx(3000)
    clock.advance(3001)
    assert asked.allowance(hops=0, max_parts=3).parts == 3


def test_reservations_count_as_used(clock):
    asked = governor(clock)
    asked.reserve("a", 46, 200)
    assert asked.allowance(hops=0, max_parts=3).reason == "half"
    assert asked.allowance(hops=0, max_parts=3, queued_ms=100_500).parts == 0
    asked.release("a")
    assert asked.allowance(hops=0, max_parts=3).parts == 3


def test_no_budget_is_no_limit(clock):
    asked = governor(clock, budget_percent=100.0)
    asked.booked(3_000_000)
    assert asked.allowance(hops=0, max_parts=3).parts == 3


async def test_packet_larger_than_the_budget_goes_in_an_empty_hour(station):
    station.air = Airtime(budget_percent=0.01)
    await station.say("Hi")
    await station.settle()
    await station.say("Ho", to=BEN)
    await station.run(30)
    assert station.radio.texts == ["Hi"]


async def test_answer_is_shortened_to_what_fits(station):
    station.air = Airtime()
    station.governor.booked(180_000 - 4_500)
    said = await station.say(LONG)
    assert len(said.parts) == 2
    assert said.rest


async def test_spent_budget_lets_only_commands_and_notices_pass(station):
    station.air = Airtime()
    station.governor.booked(180_000)
    await station.say("answer", to=ANNA)
    await station.say("pong", to=BEN, kind="command")
    await station.say("ask again in 60 min", to="!0000c003", kind="notice")
    await station.run(10)
    assert station.radio.texts == ["pong", "ask again in 60 min"]


async def test_regional_duty_cycle_binds_commands_too(station):
    station.radio.node = node(region="EU_868")
    station.governor.booked(360_000)
    await station.say("pong", kind="command")
    await station.run(30)
    assert station.radio.sent == []
    station.radio.node = node(region="EU_868", override_duty_cycle=True)
    await station.run(20)
    assert station.radio.texts == ["pong"]


async def test_nodes_own_count_of_its_duty_cycle_binds(station):
    """The node relays for others; its own figure includes that."""
    station.radio.node = node(region="EU_868")
    station.radio.air = 10.2
    await station.say("Hi")
    await station.run(20)
    assert station.radio.sent == []


async def test_ledger_survives_restarts(station):
    await station.say("Hi", to=ANNA)
    await station.settle()
    await station.ack()
    await station.say(LONG, to=BEN)
    await station.run(3)
    (first, second) = await ledger.on_day(station.db, station.clock.now())
    assert (first[0], first[1], second[0]) == (BEN, 1, ANNA)
    used = station.governor.status()["used_ms"]
    assert used == first[2] + second[2]
    await station.restart()
    assert station.governor.status()["used_ms"] == used


async def test_lost_part_costs_all_the_transmissions(station):
    await station.say("Hi")
    await station.settle()
    once = station.governor.status()["used_ms"]
    station.radio.use = 30.0
    await station.nak("MAX_RETRANSMIT")
    assert station.governor.status()["used_ms"] == 3 * once


async def test_refused_packet_costs_nothing(station):
    await station.say("Hi")
    await station.settle()
    await station.nak("DUTY_CYCLE_LIMIT")
    assert station.governor.status()["used_ms"] == 0
    assert [row[1:] for row in await ledger.on_day(station.db, station.clock.now())] == [(0, 0)]


async def test_status_is_plain_data(station):
    import json

    await station.say("Hi")
    await station.settle()
    status = json.loads(json.dumps(station.sender.status()))
    assert (status["queued"], status["in_flight"], status["held"]) == (0, 1, 0)
    assert status["airtime"]["budget_percent"] == 100.0
