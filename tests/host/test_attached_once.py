"""A life of a node puts its sink at its transport's end once, as `Transport.attach` is described."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import netdfl
from netdfl.host.network import PausableSink
from netdfl.node.delivery import AcknowledgingTransport
from netdfl.scenario.load import loads
from netdfl.transport.base import Sink
from netdfl.transport.simulated.transport import SimulatedTransport

FLEET = """
schema: netdfl/1
name: attached
nodes: 3
rounds: 4
world: {kind: simulated}
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: ring
events: [{at_round: 2, crash: 1, restart_after: 1s, state: kept}]
"""


@pytest.mark.parametrize(
    ("delivery", "sink"), [("{kind: plain}", PausableSink), ("{kind: acknowledged}", AcknowledgingTransport)]
)
def test_each_life_attaches_its_sink_once(
    delivery: str, sink: type[Sink], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached: list[tuple[SimulatedTransport, Sink]] = []
    attach = SimulatedTransport.attach

    def attaching(self: SimulatedTransport, sink: Sink) -> None:
        attached.append((self, sink))
        attach(self, sink)

    monkeypatch.setattr(SimulatedTransport, "attach", attaching)
    scenario = loads(FLEET, [f"delivery={delivery}", "wait.deadline=5s"])
    netdfl.run(scenario, out=tmp_path / "run", page=False)
    assert Counter(transport.node for transport, _ in attached) == {0: 1, 1: 2, 2: 1}
    assert {type(each) for _, each in attached} == {sink}
