"""Snapshots of models on disk, and the figures of their average: never more than two models in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import write_whole
from netdfl.core.types import NodeId
from netdfl.fleet.build import Blueprint

Judge = Callable[[Tensor], Mapping[str, float]]
JudgeLocal = Callable[[NodeId, Tensor], Mapping[str, float]]
ACCURACIES = {"test_accuracy": "mean_local_accuracy", "personal_accuracy": "mean_personal_accuracy"}
"""Figures of a local model, and what their means over the nodes are called."""


class Snapshot(NamedTuple):
    """A node's vector (the numerator, for push-sum) and its push-sum weight."""

    x: Tensor
    weight: float


def write_snapshot(path: Path, x: Tensor, weight: float) -> None:
    """Write a snapshot; it appears whole or not at all."""
    write_whole(path, save({"x": x.detach().cpu()}, metadata={"weight": repr(weight)}))


def read_snapshot(path: Path) -> Snapshot:
    """Read what `write_snapshot` wrote. Raises InputError where the file holds something else."""
    try:
        with safe_open(path, framework="pt") as file:
            found = Snapshot(file.get_tensor("x"), float((file.metadata() or {})["weight"]))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is no model that a node wrote: {error!r}; delete it to go on without it") from error
    if found.x.ndim != 1 or not found.x.is_floating_point():
        what = f"shape {tuple(found.x.shape)}, {found.x.dtype}"
        raise InputError(f"{path} is no model that a node wrote: {what}; delete it to go on without it")
    return found


def _of_dim(path: Path, dim: int) -> Snapshot:
    """A snapshot of a model with `dim` parameters. Raises InputError."""
    found = read_snapshot(path)
    if len(found.x) != dim:
        raise InputError(f"{path} is a model of {len(found.x)} parameters, and the scenario's has {dim}")
    return found


def keep_model(directory: Path, node: NodeId, x: Tensor, weight: float) -> None:
    """Keep a node's final model in the run `directory`. Raises RunError where the disk refuses it."""
    path = directory / "models" / f"{node:03d}.safetensors"
    try:
        path.parent.mkdir(exist_ok=True)
        write_snapshot(path, x, weight)
    except OSError as error:
        raise RunError(f"{path} can't be written: {error.strerror}") from error


def snapshot_path(directory: Path, round: int, node: NodeId) -> Path:
    """Where a node's snapshot of a round lies until it is judged."""
    return directory / "snapshots" / f"{round:06d}-{node:03d}.safetensors"


def judge_snapshots(blueprint: Blueprint, paths: Mapping[NodeId, Path]) -> dict[str, float]:
    """Figures of the average of the models in `paths`, as the scenario wants them."""
    wanted = blueprint.scenario.evaluation.local
    local = wanted if isinstance(wanted, int) else sys.maxsize if wanted == "all" else 0
    problem = blueprint.problem
    read = {node: (lambda path=path: _of_dim(path, problem.dim)) for node, path in sorted(paths.items())}
    return judge_average(read, problem.evaluate, problem.evaluate_local, local, push=blueprint.push)


def judge_average(
    read: Mapping[NodeId, Callable[[], Snapshot]], judge: Judge, judge_local: JudgeLocal, local: int, *, push: bool
) -> dict[str, float]:
    """Figures of the average model over the nodes of `read`, each of which is read twice.

    The average is the sum of x over the sum of w; where nobody has mass there is none. `consensus_distance` is
    the root of the mean over nodes of |z_i - average|^2, with z = x / w; a node without mass (w = 0) has no z.
    `local` models at most are judged alone.
    `weight_sum`, the sum of w over n, is a figure of push-sum (`push`) alone.
    """
    total, weights = None, 0.0
    for snapshot in (take() for take in read.values()):
        total = snapshot.x.to(torch.float64, copy=True) if total is None else total.add_(snapshot.x)
        weights += snapshot.weight
    assert total is not None
    if not weights:
        return {"weight_sum": 0.0}
    dtype = next(iter(read.values()))().x.dtype
    average = (total / weights).to(dtype)
    figures = dict(judge(average))
    figures |= _spread(read, average, judge_local, local)
    if push:
        figures["weight_sum"] = weights / len(read)
    return figures


def _spread(
    read: Mapping[NodeId, Callable[[], Snapshot]], average: Tensor, judge_local: JudgeLocal, local: int
) -> dict[str, float]:
    squares: list[float] = []
    alone: list[Mapping[str, float]] = []
    for node, take in read.items():
        snapshot = take()
        if not snapshot.weight:
            continue
        z = snapshot.x / snapshot.weight
        squares.append(float(torch.linalg.vector_norm((z - average).double()) ** 2))
        if len(alone) < local:
            alone.append(judge_local(node, z))
    figures = {"consensus_distance": (sum(squares) / len(squares)) ** 0.5}
    for name, mean in ACCURACIES.items():
        if found := [each[name] for each in alone if name in each]:
            figures[mean] = sum(found) / len(found)
    return figures
