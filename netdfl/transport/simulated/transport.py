"""The simulated transport: one node's end of the fabric that carries a whole fleet in one process."""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.core.types import Multicast, NodeId
from netdfl.transport.base import Sink
from netdfl.transport.simulated.fabric import Fabric


class SimulatedTransport:
    """One node's end of a `Fabric`. A `Transport`."""

    def __init__(self, fabric: Fabric, node: NodeId) -> None:
        """Join `node` to the fabric."""
        self.fabric, self.node = fabric, node
        fabric.join(node)

    def attach(self, sink: Sink) -> None:
        """Deliver what arrives into `sink`."""
        self.fabric.attach(self.node, sink)

    async def start(self) -> str:
        """It needs no address."""
        return ""

    def begin(self) -> None:
        """The fabric goes by the clock itself."""

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """The fabric knows where everybody is."""

    def set_gone(self, node: NodeId) -> None:
        """The fabric knows who is gone."""

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Hand over one step's messages; waits only while a destination's mailbox is full."""
        for multicast in multicasts:
            taken = self.fabric.send(multicast)
            while taken < len(multicast.dsts):
                multicast = multicast.after(taken)
                await self.fabric.room((self.node, multicast.dsts[0]))
                taken = self.fabric.send(multicast)

    async def aclose(self) -> None:
        """Let nothing more in or out; settle what this node has under way as `in_flight`."""
        self.fabric.leave(self.node)

    async def hand_over(self) -> None:
        """What was sent is the fabric's already."""
