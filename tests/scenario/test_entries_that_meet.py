"""Two entries of `links` for the same links, and times that a refusal shows as a scenario writes them."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads

SMALL = """
schema: netdfl/1
name: small
nodes: 4
rounds: 4
world: simulated
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: full
groups: {edge: [0, 1]}
"""


@pytest.mark.parametrize(
    ("links", "key"),
    [
        ("'0--1': {loss: 5%}, '1--0': {loss: 10%}", "loss"),
        ("'0--1': {loss: 5%, rate: 1Mbit}, '1 -- 0': {loss: 5%, rate: 2Mbit}", "rate"),
        ("edge->2: {latency: 1ms}, '0..1->2': {latency: none}", "latency"),
        ("edge: {uplink: 1Mbit}, '1,0': {uplink: 2Mbit}", "uplink"),
    ],
)
def test_entries_of_the_same_links_with_other_values_are_refused(links: str, key: str) -> None:
    with pytest.raises(ScenarioError, match=f"are the same, with another {key} each; leave one of them out"):
        loads(SMALL, [f"links={{{links}}}"])


@pytest.mark.parametrize(
    "links",
    [
        "'0--1': {loss: 5%}, '1--0': {loss: 5%, rate: 1Mbit}",
        "'0--1': {loss: 5%}, '0->1': {loss: 10%}",
        "default: {loss: 5%}, '*->*': {loss: 10%}",
        "'0->1': {loss: 5%}, '1->0': {loss: 10%}",
        "edge: {uplink: 1Mbit}, '1': {uplink: 2Mbit}",
    ],
)
def test_entries_of_other_links_or_with_other_keys_are_left(links: str) -> None:
    loads(SMALL, [f"links={{{links}}}"])


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("events=[{from: 10ms, to: 5ms, link: '0->1', loss: 1%}]", "to = 5ms is not after 10ms"),
        ("events=[{at_round: 3, to_round: 2, link: '0->1', loss: 1%}]", "to = round 2 is not after round 3"),
        ("events=[{from: 0s, to: 1s, flap: '0->1', up: 0s, down: 1s}]", "up = 0s must be above 0"),
        ("links={default: {latency: {dist: uniform, low: 10ms, high: 5ms}}}", "low = 10ms is above high = 5ms"),
    ],
)
def test_a_refusal_shows_times_with_their_units(sets: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(SMALL, [sets])
