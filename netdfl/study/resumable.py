"""Runs of a study that can be resumed after an interruption: which ones write checkpoints, and how often.

A simulated run's checkpoint has all its local rounds so far (`netdfl.worlds.simulated.replay`), so that a resumed run
equals one that was never interrupted. Checkpoints are an option of the run, not of the cell, and so do not change the
hash that names the cell.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from netdfl.algorithms.families import first_state
from netdfl.core.errors import InputError
from netdfl.host.blueprint import Blueprint
from netdfl.record.directory import CHECKPOINTS, hold
from netdfl.running.judged import FinishedRun
from netdfl.running.provenance import what_differs
from netdfl.running.run import resume, run
from netdfl.scenario.model.schema import Checkpoint, Scenario
from netdfl.study.keeping import FINISHED, Manner, as_published, keep
from netdfl.training.classification import Classification
from netdfl.training.drawing import aside

PARTS = 20
"""The smallest number of checkpoints in a run; a run with fewer rounds has one after each round."""
MOST_HELD = 256 * 2**20
"""The most bytes of local rounds, of all nodes together, that may wait in memory for the next checkpoint."""


def run_or_resume(scenario: Scenario, path: Path, jobs: int, manner: Manner = "whole") -> int:
    """Run a cell's `scenario` in the directory `path`, or resume an interrupted run there; return the exit code.

    `jobs` is the number of runs that share the disk; with 0, no checkpoints are written, as interrupted runs are not
    stored.

    Raises NetdflError.
    """
    if manner != "whole":
        scenario = as_published(scenario)
    finished = _resumed(path, scenario) if _is_simulated(scenario) else None
    if finished is None:
        if path.exists():
            with hold(path):
                shutil.rmtree(path)
        every = None if manner == "background" or not jobs else rounds_between(scenario, path.parent, jobs)
        if every is not None:
            scenario = scenario.model_copy(update={"checkpoint": Checkpoint(every=every)})
        finished = run(scenario, out=path, page=False)
    code = int(finished.exit_code)
    if manner != "whole" and code in FINISHED:
        keep(path)
    return code


def drop_checkpoints(path: Path) -> None:
    """Delete the checkpoints of a finished run."""
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)


def _resumed(path: Path, scenario: Scenario) -> FinishedRun | None:
    """Resume an interrupted run of `scenario`; return None if it has no checkpoints, or was made from other sources."""
    if not any((path / CHECKPOINTS).glob("*.safetensors")):
        return None
    try:
        if differing := what_differs(path, scenario):
            raise InputError(differing[0])
        return resume(path, page=False)
    except InputError as error:
        print(f"begun anew: {error}")
        return None


def rounds_between(scenario: Scenario, disk: Path, jobs: int) -> int | None:
    """Return the number of rounds between checkpoints of this run; None if netdfl should set no checkpoints.

    A run writes checkpoints if it trains a model in the simulated world, if resuming is exact (not with `batching:
    auto`), and if all checkpoints take less than half of the free space on `disk`, shared by `jobs` runs. The number is
    a twentieth of the rounds, or less if the data of a checkpoint would exceed `MOST_HELD`.

    Raises InputError.
    """
    task: Any = scenario.task
    exact = _is_simulated(scenario) and task.kind == "train" and task.batching == "exact"
    if not exact or scenario.checkpoint.every is not None:
        return None
    with aside():
        bytes_per_round = _bytes_per_round(scenario)
    if not 0 < scenario.rounds * bytes_per_round <= shutil.disk_usage(disk).free / (2 * jobs):
        return None
    return max(1, min(scenario.rounds // PARTS, MOST_HELD // bytes_per_round))


def _is_simulated(scenario: Scenario) -> bool:
    return bool(scenario.world.kind == "simulated")


def _bytes_per_round(scenario: Scenario) -> int:
    """Return the bytes on disk that one local round of all nodes takes, estimated from a node's first state."""
    blueprint = Blueprint.of(scenario)
    task = blueprint.problem.task(0, "cpu")
    assert isinstance(task, Classification)
    state = first_state(task.initial(), blueprint.algorithm, blueprint.view(0, 0, frozenset()))
    share = scenario.topology.participation
    num_trained = math.ceil(share * scenario.nodes) if share <= 1 else int(share)
    return num_trained * _num_bytes((state.x, state.start, state.local))


def _num_bytes(value: object) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return sum(map(_num_bytes, parts))
