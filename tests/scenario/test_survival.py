"""Ways to survive loss are refused where they can't be, with the place and a remedy."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: survival
nodes: 8
rounds: 4
task: consensus
algorithm: sgp
topology: {kind: random_push, out_neighbors: 3}
"""

REFUSED = {
    "counters on a graph that changes": (["delivery=running_sums"], "redraw_every: 0"),
    "counters for gossip": (["delivery=running_sums", "algorithm=dpsgd", "topology=ring"], "dpsgd sends none"),
    "compressed counters": (
        ["delivery=running_sums", "topology.redraw_every=0", "compression=qsgd"],
        "can't be compressed",
    ),
    "answers on a one-way ring": (
        ["delivery=acknowledged", "topology=directed_ring"],
        "directed_ring has no link 1->0 for the answer",
    ),
    "answers on one-way links in turn": (
        ["delivery=acknowledged", "topology=one_peer_exponential", "nodes=16"],
        "for the answer",
    ),
    "answers within a base graph that is one-way": (
        ["delivery=acknowledged", "nodes=16", "topology={kind: random_push, out_neighbors: 2, base_degree: 4}"],
        "random_push has no link",
    ),
    "undo without answers": (
        ["wait.on_missing=undo", "algorithm=dpsgd", "topology=ring"],
        "add delivery: acknowledged",
    ),
    "undo for push-sum": (["wait.on_missing=undo", "delivery=acknowledged"], "sgp has none"),
    "a timeout of nothing": (["delivery={kind: acknowledged, timeout: 0s}"], "send without end"),
}

ALLOWED = {
    "answers on random push": ["delivery=acknowledged"],
    "answers within a base graph of all links": ["delivery=acknowledged", "topology.base_degree=7"],
    "answers with a bound": ["delivery={kind: acknowledged, attempts: 3, timeout: 200ms}"],
    "counters on a fixed graph": ["delivery=running_sums", "topology.redraw_every=0"],
    "undo": ["wait.on_missing=undo", "delivery=acknowledged", "algorithm=dpsgd", "topology=ring"],
    "answers to a server": ["delivery=acknowledged", "algorithm=fedavg", "topology=star"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_survive_is_refused_with_its_reason(case: str) -> None:
    sets, expected = REFUSED[case]
    with pytest.raises(ScenarioError) as error:
        loads(BASE, sets)
    assert expected in str(error.value)


@pytest.mark.parametrize("case", ALLOWED)
def test_what_can_survive_is_taken(case: str) -> None:
    assert loads(BASE, ALLOWED[case]).delivery.kind in ("acknowledged", "running_sums")


LOSSY = "links={default: {loss: 5%}}"
AUTOMATIC: dict[str, tuple[list[str], str]] = {
    "push-sum over links that lose": ([LOSSY], "acknowledged"),
    "on a one-way graph that stays": ([LOSSY, "topology=directed_ring"], "running_sums"),
    "on a one-way graph, compressed": ([LOSSY, "topology=directed_ring", "compression=qsgd"], "plain"),
    "loss by an event": (["events=[{at: 5s, for: 1s, link: '0->1', loss: 5%}]"], "acknowledged"),
    "loss of rounds": (["events=[{at_round: 1, link: default, loss: 5%}]"], "acknowledged"),
    "damage that is found": (["links={default: {corrupt: 5%}}"], "acknowledged"),
    "damage that is delivered": (["links={default: {corrupt: {probability: 5%, mode: deliver}}}"], "plain"),
    "a queue with a bound": (["links={default: {rate: {rate: 1Mbit, queue: 10KiB}}}"], "acknowledged"),
    "an uplink's": (["links={default: {uplink: {rate: 1Mbit, queue: {messages: 2}}}}"], "acknowledged"),
    "a queue without": (["links={default: {rate: 1Mbit}}", "events=[{at: 1s, link: '0->1', rate: x0.5}]"], "plain"),
    "a partition": (["events=[{at: 1s, for: 1s, partition: [[0..3], [4..7]]}]"], "acknowledged"),
    "a partition that keeps": (
        ["events=[{at: 1s, for: 1s, partition: [[0..3], [4..7]], mode: down_hold}]"],
        "plain",
    ),
    "a link that is down": (["links={'0->1': {state: down_drop}}"], "acknowledged"),
    "a listed message": (["links={'0->1': {loss: {model: drop_list, messages: [{round: 3}]}}}"], "acknowledged"),
    "within a base graph that is one-way": ([LOSSY, "topology={kind: random_push, base_degree: 5}"], "plain"),
    "nothing lost": (["links={default: {loss: 0, latency: 5ms}}"], "plain"),
    "gossip": ([LOSSY, "algorithm=dpsgd", "topology=ring"], "plain"),
    "as written": ([LOSSY, "delivery=plain"], "plain"),
}


@pytest.mark.parametrize("case", AUTOMATIC)
def test_auto_makes_up_for_lost_mass_where_something_can_and_says_so(case: str) -> None:
    sets, expected = AUTOMATIC[case]
    scenario = loads(BASE, sets)
    assert scenario.delivery.kind == expected
    said = [notice for notice in scenario.notices if f"auto is {expected} here" in notice]
    assert len(said) == (expected != "plain" or "nothing else suits" in "".join(scenario.notices))
    assert all("links lose messages (" in notice for notice in said)
