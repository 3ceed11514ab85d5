""""""

from __future__ import annotations

import gc
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind, MessageId, Multicast, Payload, StepId
from netdfl.links.channel import Links
from netdfl.links.spec import LinksSpec
from netdfl.testing.transports import KeptLedger
from netdfl.transport.simulated.ends import FabricEdge
from netdfl.transport.simulated.fabric import Fabric
from netdfl.worlds.simulated.loop import VirtualClock, VirtualLoop


@pytest.mark.parametrize(
    "rules", [{}, {"loss": 0.2, "rate": "1Gbit", "latency": {"dist": "uniform", "low": 1, "high": 9}}]
)
def test_a_node_keeps_few_edges_on_a_graph_that_is_redrawn(rules: dict[str, Any]) -> None:
    loop = VirtualLoop()
    links = Links(LinksSpec({"default": rules}, {}, 400), Streams(0))
    fabric = Fabric(VirtualClock(loop), 0, KeptLedger(), links)
    for node in range(400):
        fabric.join(node)
    gc.collect()
    gc.disable()  # what is forgotten is freed at once, and not when a collector looks
    try:
        before = edges_alive()
        for round in range(39):
            dsts = tuple(range(1 + 10 * round, 11 + 10 * round))
            fabric.send(Multicast(0, dsts, MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0), (Payload(),) * 10))
            while (due := fabric.next_ns()) is not None:
                loop.now_ns = due
                fabric.run(due)
        assert len(fabric._ends[0].edges) <= 60
        assert edges_alive() - before <= 60
    finally:
        gc.enable()
        loop.close()


def edges_alive() -> int:
    return sum(type(each) is FabricEdge for each in gc.get_objects())
