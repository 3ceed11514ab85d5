"""A simulated network whose messages of one instant can be delivered one by one, in an order that its owner chooses.

Relies on: `OneByOneEngine`, and an owner who asks what is due before it runs an instant.

Why: The usual fabric delivers all messages of a receiver in one call, before the receiver can act. A proof asks what
happens if it acts between two of them.
"""

from __future__ import annotations

from typing import ClassVar, cast

from netdfl.core.types import Edge
from netdfl.links.one_by_one import OneByOneEngine
from netdfl.transport.simulated.ends import Content, FabricEdge
from netdfl.transport.simulated.fabric import Fabric


class OneByOneFabric(Fabric):
    """A simulated network that can deliver a single one of the messages that arrive at one instant."""

    engine_type: ClassVar[type[OneByOneEngine[FabricEdge, Content]]] = OneByOneEngine

    def due(self, now_ns: int) -> list[Edge]:
        """Return the edges of the messages due at `now_ns` whose receivers are not down, in their usual order."""
        return [edge.edge for edge in self._one_by_one.due(now_ns) if edge.target.sink is not None]

    def run_one(self, edge: Edge, now_ns: int) -> None:
        """Process the first event (such as a message's arrival) that is due on `edge` at `now_ns`, if there is one."""
        self._one_by_one.step_one(edge, now_ns)

    @property
    def _one_by_one(self) -> OneByOneEngine[FabricEdge, Content]:
        return cast(OneByOneEngine[FabricEdge, Content], self._engine)
