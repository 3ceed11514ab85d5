"""A made-up run, rich enough for every section of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netdfl.core.fates import LOSS, Fate, MessageCounts
from netdfl.core.types import Kind, Message, Payload
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.finding import Finding, keep_stall
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, NodeNow, Snapshot, State, WaitNow
from netdfl.record.directory import RunDirectory
from netdfl.record.observations import RunFacts
from netdfl.record.result import summarize
from netdfl.record.run import Run, open_run
from netdfl.record.status import EvaluationStatus, FleetStatus, NodeStatus, Phase
from netdfl.record.store import StoreWriter
from tests.record.outcomes import outcome_of

SECOND = 10**9
Fabricate = Callable[..., Run]


def fabricate_run(path: Path, nodes: int = 16, rounds: int = 50, dead: int | None = 5, classes: int = 10) -> Run:
    """Write the run of `nodes` gossiping nodes, of which `dead` is killed half way."""
    rng = np.random.default_rng(7)
    directory = RunDirectory.create(path, "ring-under-loss", 7, out=path / "run")
    directory.write("scenario.yaml", f"schema: netdfl/1\nname: ring-under-loss\nnodes: {nodes}\n# <script>&\n")
    edges = [(i, (i + hop) % nodes) for i in range(nodes) for hop in (1, 2, 5)]
    directory.write_json(
        "graph.json",
        {"num_nodes": nodes, "edges": edges, "directed": True, "server": None, "kind": "random_push", "weights": "w"},
    )
    counts = rng.dirichlet([0.3] * classes, nodes) * 90
    directory.write_json("partition.json", {"classes": list(range(classes)), "counts": counts.round().tolist()})
    with StoreWriter(directory.path, "fleet") as writer:
        _write_fleet(writer, rounds, rng)
    for node in range(nodes):
        with StoreWriter(directory.path, f"{node:03d}") as writer:
            _write_node(writer, node, rounds // 2 if node == dead else rounds, [e for e in edges if e[0] == node], rng)
            if node == dead:
                writer.event(round(rounds * 0.2 * SECOND), node, rounds // 2, "died", signal="SIGKILL", exit_code=-9)
            elif dead in ((node + 1) % nodes, (node + 2) % nodes):
                for late in (rounds // 2, rounds // 2 + 1):
                    writer.event(round((late * 0.4 + 0.9) * SECOND), node, late, "missing", awaited=[dead])
                writer.event(round(rounds * 0.23 * SECOND), node, rounds // 2 + 1, "gone", peer=dead)
    directory.write("fleet.json", make_status(nodes, rounds).to_text())
    stall = _keep_a_stall(directory)
    facts = RunFacts(
        scenario="ring-under-loss",
        seed=7,
        world="processes",
        algorithm="sgp",
        nodes=nodes,
        rounds=rounds,
        duration_s=rounds * 0.4 + 1.3,
        targets=(0.5, 0.8, 0.99),
        stalls=[stall.to_json()],
        expect={"test_accuracy": {"at_least": 0.95}},
    )
    directory.write_json("result.json", summarize(open_run(directory.path), facts).result)
    return open_run(directory.path)


def _keep_a_stall(directory: RunDirectory) -> Finding:
    """Node 1 waited for a message of node 0 that was lost, and was let go."""
    wait = WaitNow(round=3, need=1, awaited={0: AwaitedMessage(AwaitedFate.LOST, "loss", (0, 1))}, since_ns=SECOND)
    nodes = {0: NodeNow(node=0, state=State.RUNNING), 1: NodeNow(node=1, state=State.WAITING, round=3, wait=wait)}
    snapshot = Snapshot(at_ns=2 * SECOND, nodes=nodes)
    (found,) = find_stuck(snapshot)
    keep_stall(directory, found, snapshot)
    return replace(found, over=True)


def _write_fleet(writer: StoreWriter, rounds: int, rng: np.random.Generator) -> None:
    for t in range(rounds):
        at_ns, grown = round((t + 1) * 0.4 * SECOND), 1 - np.exp(-t / 12)
        writer.metrics(at_ns, None, t, {"test_accuracy": 0.1 + 0.82 * grown + rng.normal(0, 0.01)})
        writer.metrics(at_ns, None, t, {"mean_local_accuracy": 0.1 + 0.74 * grown + rng.normal(0, 0.02)})
        writer.metrics(at_ns, None, t, {"test_loss": 2.3 * np.exp(-t / 15) + 0.3})
        writer.metrics(at_ns, None, t, {"consensus_distance": 3 * np.exp(-t / 9) + 0.02 * rng.uniform(0.5, 1.5)})
        writer.metrics(at_ns, None, t, {"weight_sum": 1.0 if t < rounds // 2 else 0.94})
    writer.event(0, None, 0, "start")


def _write_node(
    writer: StoreWriter, node: int, rounds: int, edges: list[tuple[int, int]], rng: np.random.Generator
) -> None:
    slow = 1.6 if node == 3 else 1.0
    for t in range(rounds):
        at_ns = round((t * 0.4 + rng.uniform(0, 0.05)) * SECOND)
        writer.event(at_ns, node, t, "round_begin")
        writer.metrics(at_ns, node, t, {"train_loss": 2.3 * np.exp(-t / 14) + rng.uniform(0, 0.4)})
        writer.metrics(at_ns, node, t, {"train_s": 0.15 * slow})
        writer.metrics(at_ns, node, t, {"wait_s": 0.2 / slow})
        writer.metrics(at_ns, node, t, {"round_s": 0.4})
        for src, dst in edges:
            lost = rng.uniform() < 0.05
            arrived = None if lost else at_ns + round(rng.lognormal(np.log(0.02), 0.3) * SECOND)
            message = Message(src, dst, Kind.DATA, 0, t, 0, 0, Payload())
            writer.outcome(
                outcome_of(
                    message,
                    20_480 + 8 * node,
                    at_ns,
                    arrived,
                    Fate.dropped(LOSS) if lost else Fate.DELIVERED,
                )
            )


def make_status(nodes: int = 16, rounds: int = 50) -> FleetStatus:
    """A fleet in the middle of its run."""
    return FleetStatus(
        scenario="ring-under-loss",
        world="processes",
        algorithm="sgp",
        rounds=rounds,
        nodes={n: NodeStatus(n, 4000 + n, f"127.0.0.1:{9000 + n}", 20 + n % 3, Phase.RUNNING) for n in range(nodes)},
        elapsed_s=8.2,
        wall_s=8.2,
        evaluation=EvaluationStatus(19, 0.712, 1.1, 0.65, 0.0123),
        bytes_sent=12_345_678,
        messages=MessageCounts(3_456, delivered=3_421, lost=12, late=21, unfinished=2),
    )


@pytest.fixture(scope="session")
def fabricate(tmp_path_factory: pytest.TempPathFactory) -> Fabricate:
    def make(**size: int | None) -> Run:
        return fabricate_run(tmp_path_factory.mktemp("runs"), **size)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def run(fabricate: Fabricate) -> Run:
    return fabricate()


@pytest.fixture
def status() -> FleetStatus:
    return make_status()
