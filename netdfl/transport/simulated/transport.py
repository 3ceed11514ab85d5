"""The simulated transport: one node's end of the fabric that carries a whole fleet in one process.

Relies on: the fabric taking messages synchronously: no message waits here, only a sender does.

Why: Nodes know a `Transport` each, as in real worlds, while the fabric is one for all: addresses of peers, and notices
that a peer is gone, have no meaning in it, and are ignored here, in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.core.types import Multicast, NodeId
from netdfl.transport.base import Sink
from netdfl.transport.simulated.fabric import Fabric


class SimulatedTransport:
    """One node's end of the simulated network, a `Fabric`, in the form of a `Transport`."""

    def __init__(self, fabric: Fabric, node: NodeId) -> None:
        """Join `node` to the simulated network `fabric`."""
        self.fabric, self.node = fabric, node
        fabric.join(node)

    def attach(self, sink: Sink) -> None:
        """Deliver arriving messages into `sink`."""
        self.fabric.attach(self.node, sink)

    async def start(self) -> str:
        """Return an empty address, because nodes of one process need none."""
        return ""

    def begin(self) -> None:
        """Do nothing: the simulated network uses the virtual clock, and needs no start."""

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """Do nothing: the simulated network knows all nodes, which have no addresses."""

    def set_gone(self, node: NodeId) -> None:
        """Do nothing: the simulated network knows which nodes are gone."""

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Hand the messages of one step to the simulated network; wait only while the mailbox of a receiver is full."""
        for multicast in multicasts:
            taken = self.fabric.send(multicast)
            while taken < len(multicast.dsts):
                multicast = multicast.after(taken)
                await self.fabric.room((self.node, multicast.dsts[0]))
                taken = self.fabric.send(multicast)

    async def aclose(self) -> None:
        """Leave the simulated network; messages of this node that are under way get the fate `in_flight`."""
        self.fabric.leave(self.node)

    async def hand_over(self) -> None:
        """Do nothing: no message of the node waits outside the simulated network."""
