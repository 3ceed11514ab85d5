"""Nodes that share a process train together: what comes of it, in the simulated world and in a real process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from netdfl.core.process import cores
from netdfl.host.blueprint import Blueprint
from netdfl.host.models import read_snapshot
from netdfl.host.workers import make_worker
from netdfl.node.worker import BatchWorker, ThreadWorker
from netdfl.record.judge import WELL
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario
from netdfl.training.service import Service

BASE = """
schema: netdfl/1
name: hosted
seed: 3
nodes: 4
rounds: 3
task: {kind: train, dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.5}}, model: mlp}
algorithm: {name: dfedavgm, lr: 0.1, local_epochs: 2}
topology: ring
evaluation: {keep_models: true}
wait: {for: all, deadline: none}
"""
SIMULATED = ("world.kind=simulated",)
HOSTED = ("world.nodes_per_process=4",)
AUTO = ("task.batching=auto",)


def scenario(*sets: str) -> Scenario:
    return loads(BASE, list(sets))


def models(finished: FinishedRun) -> Mapping[str, torch.Tensor]:
    """Every node's final model."""
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    return {path.name: read_snapshot(path).x for path in sorted((finished.path / "models").iterdir())}


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, torch.Tensor]:
    return models(run(scenario(*SIMULATED), out=tmp_path_factory.mktemp("exact") / "run", page=False))


def test_a_process_that_hosts_several_nodes_is_exact(exact: Mapping[str, torch.Tensor], tmp_path: Path) -> None:
    found = models(run(scenario(*HOSTED), out=tmp_path / "run", page=False))
    assert len(found) == 4
    assert all(torch.equal(found[name], exact[name]) for name in exact)


@pytest.mark.parametrize("world", [SIMULATED, HOSTED])
def test_rows_give_what_nodes_by_themselves_give(
    world: tuple[str, ...], exact: Mapping[str, torch.Tensor], tmp_path: Path
) -> None:
    found = models(run(scenario(*world, *AUTO), out=tmp_path / "run", page=False))
    assert found.keys() == exact.keys()
    assert all(torch.allclose(found[name], exact[name], rtol=1e-4, atol=1e-5) for name in exact)


def test_a_simulated_run_records_how_it_trained(tmp_path: Path) -> None:
    for sets, way in (((), "alone"), (AUTO, "stacked")):
        finished = run(scenario(*SIMULATED, *sets), out=tmp_path / way, page=False)
        (details,) = finished.run.rows("SELECT details FROM events WHERE kind = 'training'")
        assert f'"{way}"' in str(details[0]).replace("'", '"')


def test_simulated_nodes_on_threads_are_those_of_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = ("task.model={name: mlp, hidden: [800]}", "rounds=2", *SIMULATED)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr("netdfl.training.service.cores", lambda threads=threads: threads)
        finished = run(scenario(*large), out=tmp_path / str(threads), page=False)
        found.append((models(finished), finished.result["event_log_hash"]))
    (one, one_hash), (three, three_hash) = found
    assert one_hash == three_hash
    assert all(torch.equal(one[name], three[name]) for name in one)


def test_a_run_in_rows_is_repeatable_and_can_be_remembered(tmp_path: Path) -> None:
    sets = (*SIMULATED, *AUTO, "checkpoint.every=1")
    first, again = (models(run(scenario(*sets), out=tmp_path / name, page=False)) for name in ("first", "again"))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert len(list((tmp_path / "first" / "checkpoints").iterdir())) == 12


@pytest.mark.parametrize(
    ("sets", "hosted", "kind"),
    [(HOSTED, 4, ThreadWorker), ((*HOSTED, *AUTO), 4, BatchWorker), (AUTO, 1, ThreadWorker)],
)
def test_the_worker_of_a_process(sets: tuple[str, ...], hosted: int, kind: type[ThreadWorker]) -> None:
    worker = make_worker(Blueprint.of(scenario(*sets)), hosted)
    assert type(worker) is kind
    worker.close()


class Watched:
    """Computes batches, one after the other, when it is let."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.began, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, calls: Sequence[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
        self.batches.append(len(calls))
        self.began.release()
        self.go_on.acquire()
        return Service("auto", 1).compute(calls)


async def test_nobody_waits_for_a_batch_to_fill_and_those_that_wait_go_together() -> None:
    compute = Watched()
    worker = BatchWorker(compute)
    first = asyncio.create_task(worker.run("train", lambda: 0))
    await asyncio.to_thread(compute.began.acquire)
    later = [asyncio.create_task(worker.run("train", lambda i=i: 1 // i)) for i in range(3)]
    await asyncio.sleep(0)
    compute.go_on.release()
    assert await first == 0
    compute.go_on.release()
    results = await asyncio.gather(*later, return_exceptions=True)
    worker.close()
    assert compute.batches == [1, 3]
    assert isinstance(results[0], ZeroDivisionError)
    assert results[1:] == [1, 0]


def test_threads_are_as_many_as_cores() -> None:
    assert Service().threads == cores() >= 1
