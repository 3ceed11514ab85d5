"""The distributed detectors against graph reduction, with probes delivered in any order."""

from __future__ import annotations

import random
import tracemalloc

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wait_graphs import plain_waits

from netdfl.core.types import NodeId
from netdfl.diagnosis.probes import AndDetector, EdgeChasingProbe, OrDetector
from netdfl.diagnosis.reduce import reduce
from netdfl.diagnosis.snapshot import Snapshot

Detectors = dict[NodeId, AndDetector] | dict[NodeId, OrDetector]


def detectors(snapshot: Snapshot, kind: type[AndDetector] | type[OrDetector]) -> Detectors:
    made = {node: kind(node) for node in snapshot.nodes}
    for node, wait in snapshot.waiting:
        made[node].wait(wait.awaited)
    return made  # type: ignore[return-value]


def run(all_: Detectors, starts: list[NodeId], order: random.Random) -> None:
    """Deliver probes in any order but one edge's own, as the algorithms demand."""
    queues: dict[tuple[NodeId, NodeId], list[EdgeChasingProbe]] = {}

    def send(probes: list[EdgeChasingProbe]) -> None:
        for probe in probes:
            queues.setdefault((probe.src, probe.dst), []).append(probe)

    for node in starts:
        send(all_[node].start())
    while queues:
        edge = order.choice(sorted(queues))
        probe = queues[edge].pop(0)
        if not queues[edge]:
            del queues[edge]
        send(all_[probe.dst].receive(probe))


@given(st.data(), st.integers(2, 8), st.randoms(use_true_random=False))
def test_and_probes_find_whoever_is_on_a_cycle(data: st.DataObject, size: int, order: random.Random) -> None:
    snapshot = data.draw(st.composite(lambda draw: plain_waits(draw, size, "all"))())
    graph = nx.DiGraph([(node, source) for node, wait in snapshot.waiting for source in wait.awaited])
    on_cycle = {n for c in nx.strongly_connected_components(graph) if len(c) > 1 for n in c}
    all_ = detectors(snapshot, AndDetector)
    run(all_, [node for node, _ in snapshot.waiting], order)
    assert {node for node, detector in all_.items() if detector.deadlocked} == on_cycle
    assert bool(on_cycle) == bool(reduce(snapshot))
    assert on_cycle <= reduce(snapshot)


@given(st.data(), st.integers(2, 8), st.randoms(use_true_random=False))
def test_or_probes_find_exactly_who_is_stuck(data: st.DataObject, size: int, order: random.Random) -> None:
    snapshot = data.draw(st.composite(lambda draw: plain_waits(draw, size, "any"))())
    all_ = detectors(snapshot, OrDetector)
    run(all_, [node for node, _ in snapshot.waiting], order)
    assert {node for node, detector in all_.items() if detector.deadlocked} == reduce(snapshot)


@pytest.mark.parametrize("kind", [AndDetector, OrDetector])
def test_a_node_that_goes_on_ends_the_computation(kind: type[AndDetector] | type[OrDetector]) -> None:
    first, second = kind(0), kind(1)
    first.wait([1])
    second.wait([0])
    (asked,) = first.start()
    (passed,) = second.receive(asked)
    first.wait([])
    assert first.receive(passed) == []
    assert not first.deadlocked


@pytest.mark.parametrize("kind", [AndDetector, OrDetector])
def test_an_answer_to_an_earlier_wait_proves_nothing(kind: type[AndDetector] | type[OrDetector]) -> None:
    all_ = {node: kind(node) for node in (0, 1)}
    all_[0].wait([1])
    all_[1].wait([0])
    todo = all_[0].start()
    all_[0].wait([])
    all_[0].wait([1])
    fresh = all_[0].start()
    while todo:
        probe = todo.pop(0)
        todo += all_[probe.dst].receive(probe)
    assert not all_[0].deadlocked
    while fresh:
        probe = fresh.pop(0)
        fresh += all_[probe.dst].receive(probe)
    assert all_[0].deadlocked


@pytest.mark.parametrize("kind", [AndDetector, OrDetector])
def test_an_initiator_has_one_detection_at_a_time(kind: type[AndDetector] | type[OrDetector]) -> None:
    """Else whoever sends probes with ever new numbers has a waiting node keep them all."""
    detector, asks = kind(0), "probe" if kind is AndDetector else "query"
    detector.wait([1, 2])
    tracemalloc.start()
    for number in range(20_000):
        assert len(detector.receive(EdgeChasingProbe(asks, 3, number, 3, 0, ((3, 1),)))) == 2  # type: ignore[arg-type]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000
    assert detector.receive(EdgeChasingProbe(asks, 3, 7, 3, 0, ((3, 1),))) == []  # type: ignore[arg-type]


def test_a_node_that_replies_twice_counts_once() -> None:
    """Else one awaited node could prove a deadlock alone, and its paths would be kept without an end."""
    detector = OrDetector(0)
    detector.wait([1, 2])
    detector.start()
    for number in range(100):
        assert detector.receive(EdgeChasingProbe("reply", 0, 1, 1, 0, ((1, number),))) == []
    assert not detector.deadlocked
    detector.receive(EdgeChasingProbe("reply", 0, 1, 5, 0, ((5, 0),)))
    assert not detector.deadlocked
    detector.receive(EdgeChasingProbe("reply", 0, 1, 2, 0, ((2, 0),)))
    assert detector.deadlocked
    assert detector.members == ((1, 0), (2, 0))
