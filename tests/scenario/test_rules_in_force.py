"""On how many links a rule acts: not where a closer one overrides it, and in whatever round a link is there."""

from __future__ import annotations

from typing import Any

from netdfl.scenario.build import build_network
from netdfl.scenario.explain.link_rules import MOST_ROUNDS, link_rules
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: test
nodes: 8
rounds: 20
task: {kind: consensus, dim: 2}
algorithm: {name: dpsgd}
topology: {kind: ring}
links:
  default: {loss: 10%, latency: 5ms, uplink: 10Mbit}
  "0--1": {loss: 0}
  "0->1": {latency: 9ms}
events:
  - {at_round: 3, for_rounds: 2, link: default, loss: 50%}
  - {at: 1s, link: "2->3", latency: 1s}
"""


def counted(*sets: str) -> dict[tuple[str, int | None, str], Any]:
    scenario = loads(BASE, sets)
    return {
        (row["of"], row["event"], row["key"]): row["links"] for row in link_rules(scenario, build_network(scenario))
    }


def test_a_rule_is_counted_where_no_closer_one_overrides_it() -> None:
    found = counted()
    assert found["default", None, "loss"] == 14
    assert found["0--1", None, "loss"] == 2
    assert found["default", None, "latency"] == 15
    assert found["0->1", None, "latency"] == 1
    assert found["default", None, "uplink"] is None
    assert (found["default", 0, "loss"], found["2->3", 1, "latency"]) == (16, 1)


def test_a_rule_of_an_event_says_when_it_holds() -> None:
    often = "{at: 1s, every: 10s, to: 100s, for: 1s, link: '0->1', loss: 1}"
    events = f"events=[{{at_round: 3, link: default, loss: 1}}, {{at: 1s, for: 2s, node: 2, uplink: 1Mbit}}, {often}]"
    found = {row["event"]: row.get("when") for row in link_rules(loads(BASE, [events]))}
    assert found == {None: None, 0: "round 3 on", 1: "1s to 3s", 2: "1s to 92s, 10 times"}
    found = {row["event"]: row.get("when") for row in link_rules(loads(BASE))}
    assert found == {None: None, 0: "round 3 to 4", 1: "from 1s"}


def test_all_graphs_of_a_redrawn_one_are_looked_at() -> None:
    scenario = loads(BASE, ["topology={kind: random_sym, neighbors: 2}"])
    network = build_network(scenario)
    edges = [set(network.graph(round).edges) for round in range(20)]
    assert MOST_ROUNDS >= 20
    found = counted("topology={kind: random_sym, neighbors: 2}")
    everywhere = set().union(*edges)
    assert found["default", None, "loss"] == len(everywhere - {(0, 1), (1, 0)}) > len(edges[0])
    assert found["default", 0, "loss"] == len(edges[3] | edges[4])
