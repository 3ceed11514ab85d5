"""How a cell is run so that it can go on when it was interrupted: which ones write checkpoints, and how often.

A simulated run's checkpoints are all its local rounds so far (see `netdfl.worlds.simulated.replay`): whoever resumes it
gets the run that was never interrupted. They are an option of the run here, and not of the cell: the hash that names
the cell is without them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from netdfl.algorithms.families import first_state
from netdfl.core.errors import InputError
from netdfl.host.blueprint import Blueprint
from netdfl.record.directory import CHECKPOINTS, hold
from netdfl.running.judged import Finished
from netdfl.running.run import resume, run
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Checkpoint, Scenario
from netdfl.training.classification import Classification
from netdfl.training.drawing import aside

PARTS = 20
"""Checkpoints of a run, at least; as many as it has rounds where these are fewer."""
MOST_HELD = 256 * 2**20
"""Bytes of local rounds, of all nodes together, that wait in memory for their checkpoint."""


def run_or_resume(file: Path, sets: Sequence[str], path: Path, jobs: int) -> int:
    """Run the cell in the directory `path`, from its checkpoints where it left any; return its exit code.

    `jobs` runs share the disk. Raises NetdflError.
    """
    scenario = load(file, sets)
    finished = _resumed(path) if _is_simulated(scenario) else None
    if finished is None:
        if path.exists():
            with hold(path):
                shutil.rmtree(path)
        every = rounds_between(scenario, path.parent, jobs)
        if every is not None:
            scenario = scenario.model_copy(update={"checkpoint": Checkpoint(every=every)})
        finished = run(scenario, out=path, page=False)
    return int(finished.exit_code)


def drop_checkpoints(path: Path) -> None:
    """Delete what nobody needs of a run that has finished."""
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)


def _resumed(path: Path) -> Finished | None:
    """The rest of an interrupted run; None where it left nothing to go on from."""
    if not any((path / CHECKPOINTS).glob("*.safetensors")):
        return None
    try:
        return resume(path, page=False)
    except InputError as error:
        print(f"begun anew: {error}")
        return None


def rounds_between(scenario: Scenario, disk: Path, jobs: int) -> int | None:
    """How many local rounds go into a checkpoint of this run; None where it writes none, or says itself how many.

    A run writes checkpoints where it trains a model in the simulated world, where going on is exact (not with
    `batching: auto`), and where all of them take less than half of what is free on `disk`, shared
    by `jobs`. They are a twentieth of the run each, or less where that would not fit `MOST_HELD`. Raises InputError.
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
    """What one local round of all nodes that train takes on disk, by their first state."""
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
