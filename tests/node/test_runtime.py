"""A node at work: it names what failed, records who was missing, and goes on from a kept state."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.clock import RealClock
from netdfl.core.errors import TrainingError
from netdfl.core.fates import MessageCounts
from netdfl.core.outcome import Outcome, outcome_of
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Multicast, NodeId, Payload, messages_of, unicasts
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.node.worker import ThreadWorker
from netdfl.testing.contract import equal
from netdfl.testing.loopback import InlineWorker, LastState, Loopback, SilentRecorder, run_fleet
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import Gradient
from netdfl.training.catalog import quadratic
from netdfl.training.toy import Quadratic
from netdfl.transport.base import Fate, Sink

N, STREAMS = 4, Streams(3)
RING = Network(TOPOLOGIES["ring"](N, STREAMS))


class Notes(SilentRecorder):
    def __init__(self) -> None:
        self.measured: Counter[str] = Counter()
        self.events: list[tuple[NodeId | None, int, str, dict[str, Any]]] = []
        self.fates: list[str] = []

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:  # type: ignore[override]
        self.fates += [outcome.fate.text] * len(outcome.edges)

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        self.measured.update(figures.keys())

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Any) -> None:
        self.events.append((node, round, kind, details))


def algorithm(name: str = "dfedavg", wait: WaitPolicy | None = None) -> Algorithm:
    return ALGORITHMS[name].build(Exchange(wait=wait or WaitPolicy(deadline_ns=None)))


def tasks() -> dict[NodeId, Quadratic]:
    return {i: quadratic(i, STREAMS, dim=4, noise=0.1) for i in range(N)}


class Fleet:
    """Nodes on a ring over perfect links, each started and resumed by hand."""

    def __init__(
        self, alg: Algorithm, num_rounds: int, lost: Any = lambda m: False, recorder: Notes | None = None
    ) -> None:
        self.notes = recorder or Notes()
        self.sinks: dict[NodeId, Sink] = {}
        self.kept = {i: LastState() for i in range(N)}
        self.nodes = {i: self.node(i, alg, task, num_rounds, lost) for i, task in tasks().items()}

    def node(self, i: NodeId, alg: Algorithm, task: Quadratic, num_rounds: int, lost: Any) -> Node:
        clock = RealClock()
        return Node(
            id=i,
            algorithm=alg,
            task=task,
            view_of=lambda round, gone: RING.view(i, round),
            num_rounds=num_rounds,
            transport=Loopback(self.sinks, i, lost),
            clock=clock,
            worker=InlineWorker(),
            recorder=self.notes,
            ledger=NodeLedger(i, clock, self.notes),
            mailbox=Mailbox(keep_late=alg.mixing.push),
            hooks=self.kept[i],
        )

    def run(self) -> dict[NodeId, NodeState]:
        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for node in self.nodes.values():
                    group.create_task(node.run())

        asyncio.run(together())
        return {i: kept.states[-1] for i, kept in self.kept.items()}


def test_a_node_goes_on_from_the_state_that_was_kept() -> None:
    alg = algorithm("oledfl_sgd")
    whole = Fleet(alg, 5).run()
    half = Fleet(alg, 2).run()
    rest = Fleet(alg, 5)
    for i, node in rest.nodes.items():
        node.kept = half[i]
    assert equal(rest.run(), whole)
    assert [len(kept.states) for kept in rest.kept.values()] == [3] * N


def test_a_message_that_never_comes_is_recorded_and_its_weight_goes_to_self() -> None:
    alg = algorithm(wait=WaitPolicy(deadline_ns=20_000_000))
    fleet = Fleet(alg, 1, lost=lambda m: (m.src, m.dst) == (0, 1))
    states = fleet.run()
    missing = [(node, round, details) for node, round, kind, details in fleet.notes.events if kind == "missing"]
    assert missing == [(1, 0, {"step": 0, "awaited": [0]})]
    whole = Fleet(algorithm(), 1).run()
    assert [equal(states[i].x, whole[i].x) for i in range(N)] == [True, False, True, True]


def test_every_round_has_its_figures() -> None:
    fleet = Fleet(algorithm("osgp"), 3)
    fleet.run()
    names = ("train_loss", "round_s", "train_s", "wait_s", "bytes_sent", "weight")
    assert fleet.notes.measured == dict.fromkeys(names, 3 * N)
    gossip = Fleet(algorithm(), 3)
    gossip.run()
    assert "weight" not in gossip.notes.measured


class Failing(Quadratic):
    """Runs out of memory in round 1."""

    def data(self, round: int) -> Any:
        inner = super().data(round)

        class Data:
            def steps(self, **length: Any) -> Iterator[Gradient]:
                if round == 1:
                    raise RuntimeError("CUDA out of memory")
                return inner.steps(**length)

            def loss(self, at: torch.Tensor) -> float:
                return inner.loss(at)

        return Data()


def test_a_failed_local_round_names_node_and_round() -> None:
    fleet = Fleet(algorithm(wait=WaitPolicy(deadline_ns=1)), 3)
    bad = fleet.nodes[2]
    healthy = quadratic(2, STREAMS, dim=4)
    bad.task = Failing(healthy.center, healthy.start, healthy.curvature, node=2, streams=STREAMS)
    with pytest.raises(ExceptionGroup) as caught:
        fleet.run()
    (error,) = caught.value.exceptions
    assert isinstance(error, TrainingError)
    assert str(error) == "training failed: CUDA out of memory"
    assert error.__notes__ == ["node 2, round 1"]


def test_a_lost_fleet_still_ends_by_its_deadlines() -> None:
    kept = run_fleet(algorithm(wait=WaitPolicy(deadline_ns=1_000_000)), RING.view, tasks(), 3, lost=lambda m: True)
    assert [len(states.states) for states in kept.values()] == [3] * N


# The ledger and the worker


def test_the_ledger_counts_each_edge_by_fate() -> None:
    notes = Notes()
    ledger = NodeLedger(0, RealClock(), notes)
    sent = Message(0, 1, Kind.DATA, 0, 0, 0, 0, Payload())
    texts = ["delivered", "late", "duplicate", "dropped:loss", "failed:unreachable", "in_flight"]
    fates = [Fate.read(text) for text in texts]
    for fate in fates:
        ledger.sent(Multicast.of(sent), 10, 0)
        ledger.settled(outcome_of(sent, 10, 0, None, fate), (sent.payload,))
    edge = ledger.edges[1]
    assert (edge.sent, edge.delivered, edge.lost, edge.in_flight) == (6, 3, 2, 1)
    assert ledger.bytes_sent == 60
    assert ledger.counts == MessageCounts(6, delivered=1, late=1, duplicate=1, lost=1, undeliverable=1, unfinished=1)
    assert notes.fates == texts
    ledger.refused((4, 0), "malformed", "bad checksum")
    assert ledger.refused_count == {"malformed": 1}
    assert notes.events[0][3] == {"reason": "malformed", "what": "bad checksum", "src": 4}


async def test_the_thread_worker_runs_in_order_and_passes_errors_on() -> None:
    worker, seen = ThreadWorker(), list[int]()
    await asyncio.gather(*(worker.run("train", seen.append, i) for i in range(5)))
    assert seen == list(range(5))
    with pytest.raises(ZeroDivisionError):
        await worker.run("mix", lambda: 1 / 0)
    worker.close()


class Garbling(Loopback):
    """Node 0 sends node 1 a payload without a vector."""

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        messages = messages_of(multicasts)
        garbled = [m._replace(payload=Payload()) if (m.src, m.dst) == (0, 1) else m for m in messages]
        await super().send(unicasts(garbled))


def test_a_malformed_message_is_refused_and_the_rest_is_mixed() -> None:
    fleet = Fleet(algorithm(), 1)
    fleet.nodes[0].transport = Garbling(fleet.sinks, 0, lambda m: False)
    fleet.sinks[0] = fleet.nodes[0].mailbox
    states = fleet.run()
    refused = [
        (node, details["src"], details["reason"]) for node, _, kind, details in fleet.notes.events if kind == "refused"
    ]
    assert refused == [(1, 0, "malformed")]
    lossy = Fleet(algorithm(wait=WaitPolicy(deadline_ns=20_000_000)), 1, lost=lambda m: (m.src, m.dst) == (0, 1)).run()
    assert equal(states, lossy)
