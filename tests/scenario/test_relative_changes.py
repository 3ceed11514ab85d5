"""Relative changes of links, such as `rate: x0.5`, are refused where no link has anything that they could multiply."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads

SMALL = """
schema: netdfl/1
name: small
nodes: 3
rounds: 4
world: simulated
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: full
"""
CORE = "underlay={links: {a--b: {latency: 6ms}, b--c: {rate: 1Mbit}}, place: {0: a, 1: b, 2: c}}"
NOTHING = {
    "a rate": ("rate: x0.1", "link: 0->1, rate: x0.1", "0->1", "links", ()),
    "a latency": ("latency: x2", "link: 0--1, latency: x2, loss: 1%", "0--1", "links", ()),
    "by rounds": ("rate: x0.1", "link: 0->1, rate: x0.1", "0->1", "links", ("links={default: {latency: 1ms}}",)),
    "an uplink": ("uplink: x0.1", "node: 0, uplink: x0.1", "node 0", "links", ("links={1: {uplink: 1Mbit}}",)),
    "another link's": ("rate: x0.5", "link: 0->1, rate: x0.5", "0->1", "links", ("links={1->0: {rate: 1Mbit}}",)),
    "a core link's rate": ("rate: x0.5", "core: a--b, rate: x0.5", "a--b", "underlay.links", (CORE,)),
    "a core link's latency": ("latency: x2", "core: b->c, latency: x2", "b->c", "underlay.links", (CORE,)),
    "over a core link with one": ("latency: x2", "link: 0->1, latency: x2", "0->1", "links", (CORE,)),
}


@pytest.mark.parametrize("case", NOTHING, ids=str)
def test_a_relative_change_of_nothing_is_refused_with_its_place_and_a_remedy(case: str) -> None:
    change, entry, where, under, sets = NOTHING[case]
    when = "at_round: 1" if case == "by rounds" else "at: 1s"
    with pytest.raises(ScenarioError) as refused:
        loads(SMALL, [*sets, f"events=[{{{when}, {entry}}}]"])
    (problem,) = refused.value.problems
    key = change.partition(":")[0]
    remedy = f"give the {key} itself, or one for it under {under}"
    assert problem.what == f"{change} changes nothing, as no {key} is given for {where}; {remedy}"


@pytest.mark.parametrize(
    "sets",
    [
        ("links={default: {rate: 1Mbit}}", "events=[{at: 1s, link: 0->1, rate: x0.5}]"),
        ("links={0->2: {rate: 1Mbit}}", "events=[{at: 1s, link: default, rate: x0.5}]"),
        ("links={default: {rate: none}}", "events=[{at: 1s, link: 0->1, rate: x0.5}]"),  # one value of a sweep
        ("events=[{at: 1s, link: 0->1, rate: 1Mbit}, {at: 2s, link: 0--1, rate: x0.5}]",),
        ("events=[{at: 1s, for: 2s, link: 0->1, rate: 1Mbit}, {at: 2s, for: 2s, link: 0--1, rate: x0.5}]",),
        ("events=[{at: 1s, link: 0->1, rate: 1Mbit}, {at_round: 2, link: 0->1, rate: x0.5}]",),
        ("events=[{at_round: 1, link: 0->1, rate: 1Mbit}, {at_round: 1, link: 0->1, rate: x0.5}]",),
        ("events=[{at: 2s, node: 0, uplink: 1Mbit}, {at: 1s, every: 2s, count: 2, for: 1s, node: 0, uplink: x0.5}]",),
        (CORE, "events=[{at: 1s, core: a->b, latency: x2}, {at: 1s, core: b--c, rate: x0.5}]"),
        (CORE, "events=[{at: 1s, core: a--b, rate: 1Mbit}, {at: 2s, core: a->b, rate: x0.5}]"),
    ],
)
def test_one_that_may_find_a_value_is_left(sets: tuple[str, ...]) -> None:
    loads(SMALL, sets)


def test_a_value_that_is_over_or_comes_later_is_none() -> None:
    over = "events=[{at: 1s, for: 1s, link: 0->1, rate: 1Mbit}, {at: 2s, link: 0->1, rate: x0.5}]"
    later = "events=[{at: 3s, link: 0->1, rate: 1Mbit}, {at: 2s, link: 0->1, rate: x0.5}]"
    for events in (over, later):
        with pytest.raises(ScenarioError, match=r"rate: x0.5 changes nothing, as no rate is given for 0->1"):
            loads(SMALL, [events])


def test_links_of_a_file_count(tmp_path: Path) -> None:
    file = tmp_path / "delays.csv"
    file.write_text("0 10 20\n12 0 10\n22 30 0\n")
    sets = [f"links_from={{file: {file}}}", "events=[{at: 1s, link: 0->1, %s}]"]
    loads(SMALL, [sets[0], sets[1] % "latency: x2"])
    with pytest.raises(ScenarioError, match=r"rate: x2 changes nothing"):
        loads(SMALL, [sets[0], sets[1] % "rate: x2"])
