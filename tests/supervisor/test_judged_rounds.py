"""When a round's models are judged: once nobody who could still give one is missing, and never twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from netdfl.core.types import NodeId
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from netdfl.supervisor.evaluation import EvaluationTracker


class Record:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.figures: list[tuple[int, str, float]] = []
        self.left_out: list[tuple[int, Any]] = []

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        self.figures += [(round, name, value) for name, value in figures.items()]

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Any) -> None:
        assert kind == "left_out"
        self.left_out.append((round, details["nodes"]))


class Fleet:
    """Four running nodes, and what is to be judged of them."""

    def __init__(self, nodes: int = 4) -> None:
        self.status = FleetStatus("x", "y", "z", 9)
        self.status.nodes = {node: NodeStatus(node, phase=Phase.RUNNING) for node in range(nodes)}
        self.record: Any = Record()
        self.asked: list[tuple[int, list[NodeId]]] = []
        self.evaluation = EvaluationTracker(range(nodes), self.status, self.record, lambda: 0, self.judge)

    def judge(self, round: int, of: Sequence[NodeId]) -> None:
        self.asked.append((round, list(of)))

    def give(self, round: int, *nodes: NodeId) -> None:
        for node in nodes:
            self.evaluation.saved(node, round)

    def end(self, node: NodeId, phase: Phase) -> None:
        self.status.nodes[node].phase = phase
        self.evaluation.look()


def test_a_round_is_judged_once_all_have_given_in_the_order_of_the_nodes() -> None:
    fleet = Fleet()
    fleet.give(2, 3, 1, 0)
    assert not fleet.asked
    fleet.give(2, 2)
    assert fleet.asked == [(2, [0, 1, 2, 3])]
    fleet.give(2, 1)
    assert len(fleet.asked) == 1
    assert not fleet.record.left_out


@pytest.mark.parametrize("phase", [Phase.CRASHED, Phase.DIED, Phase.FINISHED])
def test_who_has_ended_is_not_waited_for_and_is_named(phase: Phase) -> None:
    fleet = Fleet()
    fleet.give(0, 0, 1, 3)
    fleet.end(2, phase)
    assert fleet.asked == [(0, [0, 1, 3])]
    assert fleet.record.left_out == [(0, [2])]


def test_a_model_given_before_a_crash_counts() -> None:
    fleet = Fleet()
    fleet.give(0, 2)
    fleet.end(2, Phase.CRASHED)
    fleet.give(0, 0, 1, 3)
    assert fleet.asked[0][1] == [0, 1, 2, 3]


def test_a_node_that_returns_before_the_round_is_judged_is_waited_for_again_unless_it_joined_later() -> None:
    fleet = Fleet()
    fleet.give(5, 0, 1)
    fleet.end(2, Phase.CRASHED)
    fleet.status.nodes[2].phase = Phase.RUNNING
    fleet.give(5, 3)
    assert not fleet.asked
    fleet.evaluation.joined[2] = 6
    fleet.evaluation.look()
    assert [round for round, _ in fleet.asked] == [5]


def test_several_rounds_wait_side_by_side_and_are_judged_in_their_order() -> None:
    fleet = Fleet()
    fleet.give(4, 0, 1, 2)
    fleet.give(3, 0, 1, 2)
    fleet.end(3, Phase.DIED)
    assert [round for round, _ in fleet.asked] == [3, 4]


def test_it_is_over_when_what_was_asked_for_has_been_judged() -> None:
    fleet = Fleet()
    assert fleet.evaluation.over
    fleet.give(0, 0)
    assert not fleet.evaluation.over
    fleet.give(0, 1, 2, 3)
    assert not fleet.evaluation.over
    fleet.evaluation.judged(0, {"test_accuracy": 0.5})
    assert fleet.evaluation.over
    assert fleet.record.figures == [(0, "test_accuracy", 0.5)]


def test_what_a_resumed_run_had_judged_is_not_judged_again() -> None:
    fleet = Fleet()
    fleet.evaluation.skip([0, 1])
    fleet.give(1, 0, 1, 2, 3)
    assert not fleet.asked
    assert fleet.evaluation.over


def test_the_status_shows_the_latest_round_whatever_the_order_of_the_answers() -> None:
    fleet = Fleet()
    fleet.evaluation.judged(3, {"test_accuracy": 0.7})
    fleet.evaluation.judged(2, {"test_accuracy": 0.6})
    assert fleet.status.evaluation is not None
    assert (fleet.status.evaluation.round, fleet.status.evaluation.test_accuracy) == (3, 0.7)


def test_a_round_of_many_nodes_costs_steps_in_proportion_to_them() -> None:
    class Counted(dict[NodeId, NodeStatus]):
        looked = 0

        def __getitem__(self, node: NodeId) -> NodeStatus:
            self.looked += 1
            return super().__getitem__(node)

    fleet = Fleet(1000)
    fleet.status.nodes = counted = Counted(fleet.status.nodes)
    fleet.give(0, *reversed(range(1000)))
    assert len(fleet.asked) == 1
    assert counted.looked < 5 * 1000
