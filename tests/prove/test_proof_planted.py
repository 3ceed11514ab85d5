"""Planted bugs are found within their bound, and their fleets survive it where the bug is not there."""

from __future__ import annotations

import pytest

from netdfl.prove.bound import FaultBound, read_bound
from netdfl.prove.proof import ProofAnswer, ScenarioProof
from netdfl.prove.properties import choose_properties
from netdfl.scenario.load import load
from tests.prove.planted import BUGS, HiddenBug


def answer(bug: HiddenBug, faults: str) -> ProofAnswer:
    """The answer about a bug's fleet."""
    scenario = load(dict(bug.fleet))
    bound = read_bound(faults, bug.messages)
    return ScenarioProof(scenario, bound, choose_properties(scenario, bug.properties)).run()


RARELY = ("never sent again", "missing in two rounds in a row", "late beside missing")
"""Another bug shows by the same kind of fault."""


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, id=bug.name, marks=[pytest.mark.soak] * (bug.name in RARELY)) for bug in BUGS]
)
def test_a_planted_bug_is_found_and_without_it_all_is_survived(bug: HiddenBug) -> None:
    """By as few faults as it takes: where that is two, one says that the fleet survives."""
    bound = read_bound(bug.bound)
    with bug.planted():
        found = answer(bug, bug.bound)
        assert found.progress.broken is not None, str(found)
        assert len(found.faults) == bound.faults
        for single in singles(bound) if bug.single else ():
            assert answer(bug, single).survives
    mended = answer(bug, bug.bound)
    assert mended.survives, f"{mended} {mended.progress.broken}"
    assert bug.fleet["nodes"] <= 4
    assert bug.fleet["rounds"] <= 3


def singles(bound: FaultBound) -> list[str]:
    """The bounds of one fault."""
    return [f"{kind}: 1" for kind in bound.most]


def test_there_are_ten_and_more_of_every_kind() -> None:
    bounds = [read_bound(bug.bound) for bug in BUGS]
    assert len(BUGS) >= 10
    assert {kind for bound in bounds for kind in bound.most} == {"loss", "crash", "pause", "cut", "delay"}
    assert sum(bound.faults == 2 for bound in bounds) >= 5
    assert all(bool(bug.single) == (bound.faults == 2) for bug, bound in zip(BUGS, bounds, strict=True))
    assert {"fedavg", "sgp", "choco_sgd", "ad_psgd"} <= {bug.fleet["algorithm"] for bug in BUGS}
