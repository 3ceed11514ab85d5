"""Bugs that a wrong version of a reduction would hide, and which the right one finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netdfl.prove.proof import ScenarioProof
from netdfl.prove.symmetry import SymmetryGroup
from tests.prove.naive import FLEET, PAIR
from tests.prove.planted import HiddenBug, late_again
from tests.prove.test_counts import ACKNOWLEDGED, LATE, proof


def with_void(proven: ScenarioProof, **changes: Any) -> ScenarioProof:
    """The proof with another idea of what is void."""
    enumeration = proven.enumeration
    finder = replace(enumeration.prefix_player.finder, **changes)
    enumeration.prefix_player = replace(enumeration.prefix_player, finder=finder)
    return proven


def test_a_late_message_that_is_sent_again() -> None:
    """Acknowledged, a late message does not come in vain: its loss brings a second one, which meets the bug."""
    plain = PAIR | ACKNOWLEDGED | LATE | {"wait": {"deadline": "20ms"}}
    with HiddenBug("late again", "loss: 1", plain, late_again).planted():
        answer = proof(plain, "loss: 1").run()
        wrong = with_void(proof(plain, "loss: 1"), drops_late=True).run()
    assert answer.progress.broken is not None
    assert "late, and the second time only" in answer.progress.broken[2]
    assert wrong.survives, "what a wrong version would say"


def test_a_fleet_whose_own_event_breaks_its_symmetry() -> None:
    """One message of two is lost already, so that node 1 stalls by the loss of the other one alone."""
    event = {"at_round": 1, "drop": "0->1"}
    plain = FLEET | {"wait": {"for": {"quorum": 1}, "deadline": "none"}, "rounds": 2, "events": [event]}
    answer = proof(plain, "loss: 1", ("stall", "finish")).run()
    assert [fault.event["drop"] for fault in answer.faults] == ["2->1"]
    symmetric = proof({**plain, "events": []}, "loss: 1", ("stall", "finish")).enumeration.symmetries
    wrong = proof(plain, "loss: 1", ("stall", "finish"))
    wrong.enumeration.symmetries = symmetric
    assert len(symmetric.exchanges) == 6
    assert wrong.run().survives, "what a version that looks at the graph alone would say"
    assert proof(plain, "loss: 1", ("stall", "finish")).enumeration.symmetries == SymmetryGroup()


@pytest.mark.parametrize(
    ("changes", "names", "many"),
    [
        ({}, ("stall", "finish"), 6),
        ({"nodes": 4}, ("stall", "finish"), 8),
        ({"topology": "directed_ring", "algorithm": "sgp"}, ("stall",), 3),
        ({"links": {"default": {"latency": "5ms"}, "0->1": {"latency": "6ms"}}}, ("stall",), 1),
        ({"links": {"default": {"latency": "5ms", "loss": 0.01}}}, ("stall",), 0),
        ({"links": {"default": {}}}, ("stall",), 0),
        ({}, ("diverged",), 0),
    ],
    ids=["ring", "ring of four", "directed", "one slow link", "luck", "ties", "numbers"],
)
def test_symmetries_are_those_of_all_that_counts(changes: dict[str, Any], names: tuple[str, ...], many: int) -> None:
    found = proof({**FLEET, "rounds": 1, **changes}, "loss: 1", names)
    assert len(found.enumeration.symmetries.exchanges) == many
