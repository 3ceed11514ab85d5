"""Links that the scenario has down from the start, as the launcher of real processes sees them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from netdfl.core.clock import NS_PER_S
from netdfl.diagnosis.outages import EdgeOutage
from netdfl.fleet.stall_probes import StallProbes
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block
from netdfl.scenario.load import loads

HELD = """
schema: netdfl/1
name: held
nodes: 4
rounds: 4
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: ring
wait: {for: all, deadline: none}
links: {"0->1": {state: down_hold}}
"""


def test_a_launcher_knows_of_a_link_that_is_down_before_any_event() -> None:
    launcher: Any = SimpleNamespace(scenario=loads(HELD, on="processes"), live=set())
    outages = StallProbes(launcher, []).outages
    assert outages.edge((0, 1), NS_PER_S) == EdgeOutage(False, None, True)
    assert outages.edge((1, 0), NS_PER_S) == EdgeOutage()


def test_an_event_may_end_what_the_links_began_with() -> None:
    launcher: Any = SimpleNamespace(scenario=loads(HELD, on="processes"), live=set())
    blocks = (Block(frozenset([0]), frozenset([1])),)
    up = CompiledEvent("set", 0, at_ns=2 * NS_PER_S, blocks=blocks, parameters={"state": "up"})
    outages = StallProbes(launcher, [up]).outages
    assert outages.edge((0, 1), NS_PER_S) == EdgeOutage(False, 2 * NS_PER_S, True)
    assert outages.edge((0, 1), 2 * NS_PER_S) == EdgeOutage()
