"""The admission of messages: what an honest node sends is admitted, and nothing else."""

from __future__ import annotations

import pytest

from netdfl.core.types import Kind, Message, Payload
from netdfl.node.admission import KEPT, Admission

ROUNDS = 40


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
