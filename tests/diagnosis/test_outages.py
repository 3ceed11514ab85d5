"""Links that the scenario has down from the start, as who looks after a fleet sees them."""

from __future__ import annotations

from netdfl.core.clock import NS_PER_S
from netdfl.diagnosis.outages import EdgeOutage, Outages
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block
from netdfl.scenario.build import build_links, compile_schedule
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


def test_a_supervisor_knows_of_a_link_that_is_down_before_any_event() -> None:
    scenario = loads(HELD, on="processes")
    outages = Outages(compile_schedule(scenario), build_links(scenario).link)
    assert outages.edge((0, 1), NS_PER_S) == EdgeOutage(False, None, True)
    assert outages.edge((1, 0), NS_PER_S) == EdgeOutage()


def test_an_event_may_end_what_the_links_began_with() -> None:
    scenario = loads(HELD, on="processes")
    blocks = (Block(frozenset([0]), frozenset([1])),)
    up = CompiledEvent("set", 0, at_ns=2 * NS_PER_S, blocks=blocks, parameters={"state": "up"})
    outages = Outages([up], build_links(scenario).link)
    assert outages.edge((0, 1), NS_PER_S) == EdgeOutage(False, 2 * NS_PER_S, True)
    assert outages.edge((0, 1), 2 * NS_PER_S) == EdgeOutage()
