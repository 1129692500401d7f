"""A ready-made mesh: a bot's node, a relay and two people with phones, on a lossy channel, faster than life."""

from __future__ import annotations

from dataclasses import dataclass

from meshai.radio.virtual.frame import Link
from meshai.radio.virtual.mesh import Mesh
from meshai.radio.virtual.node import VirtualNode
from meshai.radio.virtual.phone import Phone
from meshai.radio.virtual.settings import NodeSettings
from meshai.radio.virtual.tcp import TcpPort

BOT_NUM, RELAY_NUM, PHONE_NUMS = 0x0B07A1A1, 0x0E1A7002, (0x0A11CE03, 0x0B0B0004)
PEOPLE = (("Alice", "ALI"), ("Bob", "BOB"))


@dataclass(slots=True)
class DefaultMesh:
    """What ``default_mesh`` built; nothing runs before ``start``."""

    mesh: Mesh
    bot: VirtualNode
    relay: VirtualNode
    phones: list[Phone]
    port: TcpPort

    @property
    def bot_host(self) -> str:
        """Where the bot's node listens."""
        return self.port.host

    @property
    def bot_port(self) -> int:
        """The TCP port of the bot's node; 0 before ``start`` unless chosen."""
        return self.port.port

    async def start(self) -> None:
        """Let time flow and open the bot's port."""
        self.mesh.start()
        await self.port.start()

    async def stop(self) -> None:
        """Close the port and freeze time."""
        await self.port.stop()
        self.mesh.stop()


def default_mesh(
    *,
    speed: float = 20.0,
    seed: int = 1,
    loss: float = 0.05,
    host: str = "127.0.0.1",
    port: int = 0,
    preset: str = "LONG_FAST",
    region: str = "US",
    phones: int = 2,
    direct: bool = False,
) -> DefaultMesh:
    """Bot — relay — phones. The first phone is out of the bot's reach unless ``direct``; the second hears it faintly.

    ``loss`` is the chance that one transmission is not heard over one link.
    """
    mesh = Mesh(seed=seed, speed=speed)

    def settings(long_name: str, short_name: str, role: str = "CLIENT") -> NodeSettings:
        return NodeSettings(long_name=long_name, short_name=short_name, role=role, preset=preset, region=region)

    bot = mesh.add(settings("MeshAI", "AI"), num=BOT_NUM)
    relay = mesh.add(settings("Hilltop relay", "HILL", "ROUTER"), num=RELAY_NUM)
    mesh.link(bot, relay, Link(loss=loss, snr=7.5, rssi=-72))
    people = []
    for index in range(phones):
        long_name, short_name = PEOPLE[index] if index < len(PEOPLE) else (f"Phone {index + 1}", f"P{index + 1}")
        num = PHONE_NUMS[index] if index < len(PHONE_NUMS) else None
        node = mesh.add(settings(long_name, short_name), num=num)
        mesh.link(relay, node, Link(loss=loss, snr=5.25 - index, rssi=-85 - 3 * index))
        if direct or index == 1:
            mesh.link(bot, node, Link(loss=loss if direct else min(1.0, 4 * loss), snr=-9.5, rssi=-112))
        people.append(Phone(node))
    mesh.introduce()
    return DefaultMesh(mesh, bot, relay, people, TcpPort(bot, host, port))
