"""Meshes whose time is moved by hand."""

import pytest

from meshai.radio.virtual import Link, Mesh, NodeSettings, Phone, Timeline


class Chain:
    """Nodes in a row, each hearing its neighbours only; a phone on the first and one on the last."""

    def __init__(self, length, *, seed=1, loss=0.0, timeline=None, **settings):
        self.mesh = Mesh(seed=seed, timeline=timeline or Timeline())
        self.nodes = [
            self.mesh.add(NodeSettings(long_name=f"Node {i}", **settings), num=0x1000 + i + 1) for i in range(length)
        ]
        for a, b in zip(self.nodes, self.nodes[1:], strict=False):
            self.mesh.link(a, b, Link(loss=loss))
        self.mesh.introduce()
        self.first, self.last = Phone(self.nodes[0]), Phone(self.nodes[-1])

    def wait(self, seconds):
        self.mesh.timeline.advance(seconds)

    @property
    def texts(self):
        """What the last phone received."""
        return [message.text for message in self.last.received]


@pytest.fixture
def chain():
    return Chain
