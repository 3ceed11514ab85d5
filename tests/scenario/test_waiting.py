"""Ways to wait are refused where they would do nothing, with a remedy."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: waiting
nodes: 8
rounds: 4
task: consensus
algorithm: dpsgd
topology: ring
"""
STALE = "wait={for: none, stale: 2}"
PUSH = ("algorithm=sgp", "topology={kind: random_push, out_neighbors: 2}")


def missing(how: str) -> str:
    return f"wait={{deadline: 50ms, on_missing: {how}}}"


REFUSED = {
    "stale mass": ([STALE, *PUSH], "mixed however late it comes"),
    "stale reports": ([STALE, "algorithm=fedavg", "topology=star"], "reports of one round"),
    "stale replies": (["wait={deadline: 1s, stale: 2}", "algorithm=ad_psgd"], "whenever it comes"),
    "stale beside tau": ([STALE, "algorithm=asyng", PUSH[1]], "tau bounds how late"),
    "stale differences": ([STALE, "compression=qsgd"], "remove stale or compression"),
    "stale by definition": ([STALE, "algorithm=choco_sgd"], "choco_sgd sends something else"),
    "stale and exact": ([STALE, "algorithm={name: slowmo, every: 4}", "topology=full"], "exact average"),
    "stale on a graph that changes": ([STALE, "topology={kind: random_sym, neighbors: 2}"], "use a static graph"),
    "stale and undone": (
        ["wait={stale: 2, on_missing: undo}", "delivery=acknowledged"],
        "undo refuses a vector that comes late",
    ),
    "the last share": ([missing("last"), *PUSH], "a missing one leaves no weight for last"),
    "shares scaled up": ([missing("renormalise"), *PUSH], "a missing one leaves no weight for renormalise"),
    "shares scaled up later": ([missing("renormalise"), "algorithm=asyng", PUSH[1]], "remove on_missing"),
    "the last report": ([missing("last"), "algorithm=fedavg", "topology=star"], "averages the reports that came"),
    "the last reply": ([missing("last"), "algorithm=ad_psgd"], "moves nobody"),
    "the last sparse vector": ([missing("last"), "algorithm=dispfl"], "dispfl averages each coordinate"),
    "the last error": ([missing("last"), "algorithm=deepsqueeze", "compression=qsgd"], "deepsqueeze gives"),
    "the last by scheme": ([missing("last"), "compression={kind: qsgd, scheme: deepsqueeze}"], "deepsqueeze gives"),
    "the last as printed": ([missing("last"), "algorithm={name: qdfedavgm, form: literal}"], "literal gives"),
    "references scaled up": ([missing("renormalise"), "algorithm=choco_sgd"], "use on_missing: self or last"),
    "a quorum of seven on a ring": (["wait.for={quorum: 7}"], "a quorum of at most 2"),
    "a quorum of those not sampled": (
        ["wait.for={quorum: 5}", "algorithm=fedavg", "topology={kind: star, participation: 0.5}"],
        "a quorum of at most 4",
    ),
    "a quorum of all, oneself too": (
        ["wait={for: {quorum: 8}, deadline: none}", *PUSH, "algorithm={name: dfedsgpsm_s, neighbors: 1}"],
        "the most is 7, use for: all, or a quorum of at most 1",
    ),
    "a quorum of more than all, on graphs that change": (["wait.for={quorum: 8}", *PUSH], "the most is 7"),
    "no wait for a reply": (["wait.for=none", "algorithm=ad_psgd"], "asks again before"),
    "a quorum for one reply": (["wait.for={quorum: 2}", "algorithm=ad_psgd"], "waits for one reply"),
}
ALLOWED = {
    "stale gossip": [STALE],
    "stale gossip in steps": [STALE, "algorithm={name: dfedsam_mgs, gossip_steps: 2}"],
    "stale gossip before the step": [STALE, "algorithm=lian_dpsgd"],
    "stale or else the last": ["wait={deadline: 1s, stale: 2, on_missing: last}"],
    "the last vector": [missing("last")],
    "vectors scaled up": [missing("renormalise")],
    "the last reference": [missing("last"), "algorithm=choco_sgd"],
    "both of two neighbors": ["wait.for={quorum: 2}"],
    "all that are sampled": ["wait.for={quorum: 4}", "algorithm=fedavg", "topology={kind: star, participation: 0.5}"],
}
NOTICED = {
    "the corners of a grid": (
        ["wait.for={quorum: 3}", "topology=grid"],
        "than some nodes hear from (2); they wait for all of those",
    ),
    "senders that choose alone": (
        ["wait={for: {quorum: 5}, deadline: none}", *PUSH, "algorithm={name: dfedsgpsm_s, neighbors: 1}"],
        "than some nodes hear from in some rounds (0); they then wait without end",
    ),
    "a graph that changes, and all know it": (
        ["wait={for: {quorum: 5}, deadline: none}", *PUSH],
        "(0); they wait for all of those",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_way_to_wait_that_would_do_nothing_is_refused_with_a_remedy(case: str) -> None:
    sets, expected = REFUSED[case]
    with pytest.raises(ScenarioError) as error:
        loads(BASE, sets)
    assert expected in str(error.value)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize("case", ALLOWED)
def test_a_way_to_wait_that_does_something_is_taken_without_a_word(case: str) -> None:
    assert loads(BASE, ALLOWED[case]).notices == ()


@pytest.mark.parametrize("case", NOTICED)
def test_what_a_quorum_means_for_nodes_that_hear_from_fewer_is_said(case: str) -> None:
    sets, expected = NOTICED[case]
    (notice,) = loads(BASE, sets).notices
    assert expected in notice
