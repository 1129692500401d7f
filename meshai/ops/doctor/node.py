"""The node: what its firmware and settings mean for a bot. Asked of the running daemon, or of the node itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any

from meshai.clock import SystemClock
from meshai.config.model import Settings
from meshai.errors import MeshAIError
from meshai.ops.doctor.base import Check, Context, fail, ok, skip, warn
from meshai.ops.node_advice import node_problems
from meshai.ops.node_facts import node_of
from meshai.radio.airtime import DUTY_CYCLE_PERCENT
from meshai.radio.link import LinkEvent, LinkState, NodeInfo, RadioLink

TIMEOUT_S = 60.0
"""A handshake over a slow port with a full node database takes tens of seconds."""
LOOK_EVERY_S = 0.05
FLASH = "update the node's firmware: https://flasher.meshtastic.org"
STOPPED = "with the daemon stopped: meshtastic --set {}"
RELAYS = {"ROUTER", "ROUTER_LATE", "ROUTER_CLIENT", "REPEATER"}
ASLEEP = {"TRACKER", "SENSOR", "TAK", "TAK_TRACKER", "LOST_AND_FOUND", "CLIENT_HIDDEN"}
POLITE_HOPS = 3
NEWEST_READ = (2, 8)
"""Firmware whose source the papers were written from: 2.7.26 (protocol.md, head)."""
RULES: tuple[tuple[tuple[int, int, int], str, str], ...] = (
    ((2, 5, 0), "fail", "it knows no public keys: nobody's messages can be authenticated"),
    ((2, 7, 4), "warn", "it does not answer heartbeats: a dead connection is noticed after minutes only"),
    ((2, 7, 14), "warn", "it still takes messages whose sender anybody can forge; MeshAI ignores them"),
    ((2, 7, 19), "warn", "without a person's key it sends to them readable for the whole channel"),
)
"""What firmware below a version does; the first that holds is told (protocol.md §0, §5.3, §6)."""


async def check_node(ctx: Context) -> list[Check]:
    """Connection, firmware, region and duty cycle, role, hop limit, keys, channels, the node's clock."""
    if ctx.facts is not None:
        return _by_daemon(ctx.facts, ctx.settings)
    if ctx.daemon_runs:
        way_in = "" if os.geteuid() == 0 else "sudo meshai doctor"
        return [skip("node", "left to the daemon, which gave no answer", way_in)]
    if ctx.leave_node:
        return [skip("node", f"not opened: {ctx.leave_node}")]
    if ctx.loaded is None:
        return [skip("node", "needs a configuration without mistakes")]
    return await _directly(ctx)


def judge(node: NodeInfo, settings: Settings) -> Iterator[Check]:
    """What a node's firmware and settings mean for a bot on it."""
    yield _firmware(node)
    yield from _region(node, settings)
    yield from _manners(node)
    problems = [text for text in node_problems(node, settings) if "LoRa region" not in text]
    for text in problems:
        yield fail("node settings", text, "the node's settings in the Meshtastic app, or the setting named here")
    if not problems:
        yield ok("node settings", "it has its key pair, and the channels of the configuration")


def _by_daemon(facts: Mapping[str, Any], settings: Settings) -> list[Check]:
    link = facts["link"]
    reason = str(link.get("reason") or "")
    checks = []
    if link["state"] == LinkState.UP:
        checks.append(ok("node", f"connected by the daemon ({link['device']})"))
    else:
        checks.append(fail("node", f"the daemon has no node: {reason or link['state']}", _remedy(reason)))
    node = node_of(facts)
    if node is not None:
        checks += judge(node, settings)
    return checks


async def _directly(ctx: Context) -> list[Check]:
    from meshai.radio.registry import open_link

    try:
        link = open_link(ctx.settings.connection, SystemClock())
    except MeshAIError as error:
        return [fail("node", str(error), "see the check of the libraries")]
    node, reason = await visit(link)
    if node is None:
        return [fail("node", reason, _remedy(reason))]
    name = f"{node.id} {node.long_name}, {node.hardware}, {node.nodes_known} nodes known; its clock was set"
    return [ok("node", name), *judge(node, ctx.settings)]


async def visit(link: RadioLink, *, timeout_s: float = TIMEOUT_S) -> tuple[NodeInfo | None, str]:
    """Connect once and leave: the node, or why there is none. The first failure counts."""

    def nobody(_event: LinkEvent) -> None:
        """What arrives meanwhile is not for us."""

    await link.start(nobody)
    try:
        async with asyncio.timeout(timeout_s):
            while link.state is not LinkState.UP:
                reason = str(link.status().get("reason") or "")
                if reason and link.state is not LinkState.CONNECTING:  # before the first attempt there is none
                    return None, reason
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        return None, f"connected, but the node says nothing for {timeout_s:g} s: it is wedged"
    else:
        return link.node, ""
    finally:
        await link.stop()


def _remedy(reason: str) -> str:
    """What to type for a reason out of radio.explain, radio.discover and the session."""
    known = (
        ("held", "look who has it: sudo fuser -v /dev/ttyACM0 /dev/ttyUSB0, and end that program"),
        (
            "permission",
            "sudo usermod -aG dialout $USER, then log in again; for the service: sudo meshai service install",
        ),
        ("found on USB", "plug the node in with a cable that carries data; then: ls -l /dev/serial/by-id/"),
        ("several nodes", "set connection.serial_port in the configuration to one of them"),
        ("not there", "ls -l /dev/serial/by-id/; plug the node in again"),
        ("host name", "set connection.tcp_host to the node's address"),
        (
            "nothing listens",
            "is the node on, and Wi-Fi or Ethernet enabled on it? connection.tcp_host, connection.tcp_port",
        ),
        ("cannot be reached", "ping the address in connection.tcp_host; is the node on?"),
        ("another program", "close the phone app or web client that is connected to this node, and its Bluetooth"),
    )
    default = "press the node's reset button, or unplug it for ten seconds; then: meshai doctor"
    return next((fix for words, fix in known if words in reason), default)


def _firmware(node: NodeInfo) -> Check:
    from meshai.radio.nodeinfo import version_numbers

    version = version_numbers(node.firmware)
    if not version:
        return warn("firmware", f"the node does not say a version ({node.firmware[:20] or 'nothing'})", FLASH)
    for below, status, text in RULES:
        if version < below:
            told = f"{node.firmware}, older than {'.'.join(map(str, below))}: {text}"
            return fail("firmware", told, FLASH) if status == "fail" else warn("firmware", told, FLASH)
    if version[:2] >= NEWEST_READ:
        return warn("firmware", f"{node.firmware} is newer than this program knows", "look for a newer MeshAI")
    return ok("firmware", node.firmware)


def _region(node: NodeInfo, settings: Settings) -> Iterator[Check]:
    if node.region == "UNSET":
        fix = STOPPED.format("lora.region EU_868 (or your own region)")
        yield fail("region", "the node has no LoRa region and transmits nothing", fix)
        return
    duty = DUTY_CYCLE_PERCENT.get(node.region, 100.0)
    text = f"{node.region} {node.preset}" + (f", duty cycle {duty:g} %" if duty < 100 else "")
    budget = settings.airtime.budget_percent
    if node.override_duty_cycle and duty < 100:
        yield warn("region", f"{text}, but the node ignores it", STOPPED.format("lora.override_duty_cycle false"))
    elif budget > duty:
        yield warn(
            "region",
            f"{text}: airtime.budget_percent {budget:g} can never be used",
            f"airtime.budget_percent: {duty / 2:g}",
        )
    else:
        yield ok("region", f"{text}, own budget {budget:g} %")


def _manners(node: NodeInfo) -> Iterator[Check]:
    if node.role in RELAYS:
        yield warn(
            "role",
            f"{node.role}: it relays before others do, and a bot's node is rarely the best placed",
            STOPPED.format("device.role CLIENT"),
        )
    elif node.role in ASLEEP:
        yield warn(
            "role", f"{node.role}: made for something else, it may sleep or hide", STOPPED.format("device.role CLIENT")
        )
    else:
        yield ok("role", node.role)
    if node.hop_limit > POLITE_HOPS:
        yield warn(
            "hop limit",
            f"{node.hop_limit}: answers may flood far beyond where the question came from",
            STOPPED.format("lora.hop_limit 3"),
        )
    else:
        yield ok("hop limit", str(node.hop_limit))
