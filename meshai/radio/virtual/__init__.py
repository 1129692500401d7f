"""A virtual mesh that speaks the real device protocol, for the demo, the tests and anybody without hardware.

    virtual = default_mesh(speed=50)                      # a bot's node, a relay, two phones; times pass 50 x as fast
    await virtual.start()
    iface = TCPInterface(virtual.bot_host, portNumber=virtual.bot_port)     # the stock library, in a thread
    alice = virtual.phones[0]
    sent = await alice.send_dm(virtual.bot, "hello")      # PKI DM over the relay, lossy air, firmware retransmissions
    await alice.settled(sent)                             # sent.fate: acked | failed (relayed on the way)
    answer = await alice.wait_for(lambda m: m.from_num == virtual.bot.num)
    await virtual.stop()

A mesh of one's own: ``mesh = Mesh(seed=7, speed=100)``, ``a = mesh.add(NodeSettings(long_name="A"))``,
``mesh.link(a, b, Link(loss=0.1))``, ``mesh.introduce()``, ``mesh.start()``, ``port = TcpPort(a)``,
``await port.start()``, ``Phone(b)``. Without an event loop: ``Mesh(timeline=Timeline())`` and
``mesh.timeline.advance(seconds)``. Durations are protocol seconds unless said otherwise.

Faults of a port: ``drop() reset() stall() mute() lose() refuse(s) swap(node)``, ``silent``, ``hang_after``. Of a serial
port (``PtyPort``): ``unplug() plug() mute()``. Of a node: ``reboot() reboot_loop(n) switch_off() switch_on() rekey()``,
``free_zero``, ``radio.jammed``, ``radio.has_radio``. Of the mesh: ``unlink(a, b)``.
"""

from meshai.radio.virtual.air import Air
from meshai.radio.virtual.frame import Link
from meshai.radio.virtual.mesh import Mesh
from meshai.radio.virtual.node import VirtualNode
from meshai.radio.virtual.phone import Fate, Message, Phone, Sent
from meshai.radio.virtual.pty import PtyPort
from meshai.radio.virtual.scenario import DefaultMesh, default_mesh
from meshai.radio.virtual.settings import ChannelSettings, NodeSettings
from meshai.radio.virtual.tcp import TcpPort
from meshai.radio.virtual.timeline import LoopTimeline, Timeline

__all__ = [
    "Air",
    "ChannelSettings",
    "DefaultMesh",
    "Fate",
    "Link",
    "LoopTimeline",
    "Mesh",
    "Message",
    "NodeSettings",
    "Phone",
    "PtyPort",
    "Sent",
    "TcpPort",
    "Timeline",
    "VirtualNode",
    "default_mesh",
]
