"""The admission of messages: what an honest node sends is admitted, and nothing else."""

from __future__ import annotations

import pytest

from netdfl.core.types import Kind, Message, Payload
from netdfl.host.blueprint import Blueprint
from netdfl.node.admission import KEPT, Admission
from netdfl.scenario.load import loads

ROUNDS = 40
PLAIN = "{{schema: netdfl/1, name: x, nodes: 4, rounds: 4, task: consensus, algorithm: {algorithm}, topology: {graph}}}"


def admission(asked: list[int] | None = None) -> Admission:
    """Node 0's, to whom node 1 sends in even rounds and node 2 in odd ones; node 3 is no neighbor."""

    def senders(round: int) -> tuple[int, ...]:
        if asked is not None:
            asked.append(round)
        return (2,) if round % 2 else (1,)

    used = (Kind.DATA, Kind.HEARTBEAT, Kind.FETCH)
    return Admission(ROUNDS, senders, {1, 2}, {}, lambda kind: kind in used)


def message(src: int, kind: Kind = Kind.DATA, round: int = 0) -> Message:
    return Message(src, 0, kind, 0, round, 0, 0, Payload())


@pytest.mark.parametrize(
    "sent",
    [
        message(1),
        message(2, round=1),
        message(1, round=ROUNDS - 2),
        message(2, round=ROUNDS - 1),
        message(2, Kind.HEARTBEAT, round=10**6),  # they are numbered
        message(3, Kind.FETCH),  # who lost its state asks anybody
    ],
)
def test_what_honest_nodes_send_is_admitted(sent: Message) -> None:
    assert admission().objection(sent) == ""


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (message(2), "node 2 sent a data of round 0, in whose graph it has no edge to this node"),
        (message(1, round=1), "no edge"),
        (message(3), "no edge"),
        (message(1, round=ROUNDS), "round 40, and the run has 40"),
        (message(1, round=-1), "round -1, and the run has 40"),
        (message(1, Kind.REQUEST), "a request, which nobody uses in this run"),
        (message(1, Kind.BOARD), "nobody uses"),
        (message(3, Kind.HEARTBEAT), "a heartbeat, and is no neighbor"),
    ],
)
def test_what_no_honest_node_sends_is_refused_with_the_reason(sent: Message, why: str) -> None:
    assert why in admission().objection(sent)


def test_a_graph_is_asked_for_once_a_round_and_few_are_kept() -> None:
    asked: list[int] = []
    admitted = admission(asked)
    for round in (*range(KEPT), *range(KEPT)):
        admitted.objection(message(1, round=round))
    assert asked == list(range(KEPT))
    admitted.objection(message(1, round=KEPT))
    admitted.objection(message(1, round=0))
    assert asked == [*range(KEPT + 1), 0]


@pytest.mark.parametrize(
    ("algorithm", "graph", "steps"),
    [
        ("dpsgd", "ring", [1, 1, 1]),
        ("{name: dfedsam_mgs, gossip_steps: 3}", "ring", [3, 3, 3]),
        ("{name: slowmo, every: 2}", "full", [0, 1, 0]),
        ("fedavg", "star", [2, 2, 2]),
        ("ad_psgd", "ring", [2, 2, 2]),
    ],
)
def test_a_round_has_as_many_steps_as_its_algorithm_makes(algorithm: str, graph: str, steps: list[int]) -> None:
    made = Blueprint.of(loads(PLAIN.format(algorithm=algorithm, graph=graph)))
    admitted = made.admission(0, made.mailbox())
    for round, most in enumerate(steps):
        src = next(src for src in range(1, 5) if "edge" not in admitted.objection(message(src, round=round)))
        said = {step: admitted.objection(message(src, round=round)._replace(step=step)) for step in range(-1, 5)}
        assert [step for step, objection in said.items() if not objection] == list(range(most))
        assert f"of step 4 of round {round}, which has {most}" in said[4]
