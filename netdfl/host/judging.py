"""The evaluation of models after a round: of the average of the nodes' models, and of some nodes' own models.

At most two models are in memory in addition to the average.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.vector import SHORT_BYTES, Vector, vector
from netdfl.core.control import of_node
from netdfl.core.types import NodeId
from netdfl.host.blueprint import Blueprint
from netdfl.host.models import ModelSnapshot, read_snapshot
from netdfl.mixing.base import LEAST_WEIGHT, has_mass
from netdfl.training.base import NOTHING, Kept

if TYPE_CHECKING:
    from torch import Tensor

Judge: TypeAlias = "Callable[[Tensor], Mapping[str, float]]"
JudgeLocal: TypeAlias = "Callable[[NodeId, Tensor], Mapping[str, float]]"
Read = Callable[[], ModelSnapshot]
MEANS = {"test_": "mean_local_", "personal_": "mean_personal_"}
"""Prefixes of the names of one local model's metrics, each with the prefix for the metric's mean over the nodes."""
ALONE = "test_"
"""Prefix of the metrics of a node's own model that are recorded for each node, in addition to their mean over nodes."""


def judge_files(blueprint: Blueprint, paths: Mapping[NodeId, Path]) -> dict[str, float]:
    """Evaluate the average of the models in the files `paths`. Raises InputError if a file is damaged."""
    dim = blueprint.problem.judged_dim
    return judge(
        blueprint, {node: partial(read_snapshot, path, dim, torch=not blueprint.plain) for node, path in paths.items()}
    )


def judge(blueprint: Blueprint, models: Mapping[NodeId, Read]) -> dict[str, float]:
    """Evaluate the average of `models`, and as many of them singly as the scenario asks; return the metrics by name.

    `models` has a function for each node that reads its model; the function is called more than once.
    """
    wanted, problem = blueprint.scenario.evaluation.local, blueprint.problem
    local = wanted if isinstance(wanted, int) else sys.maxsize if wanted == "all" else 0
    alone = len(models) == 1 and not blueprint.scenario.has_server
    kept = _KeptBuffers()
    ordered = {node: partial(kept.remember, take) for node, take in sorted(models.items())}
    return judge_average(
        ordered,
        lambda x: problem.evaluate(x, kept.first, alone=alone),
        lambda node, x: problem.evaluate_local(node, x, kept.last, alone=alone),
        local,
        begun=_num_begun(blueprint, models) if blueprint.push else None,
    )


def _num_begun(blueprint: Blueprint, models: Collection[NodeId]) -> int:
    """Return the number of nodes that have begun: crashed nodes count, nodes that have yet to join do not."""
    return sum(node in models or node not in blueprint.joiners for node in blueprint.evaluated)


class _KeptBuffers:
    """The module buffers of two models: the first one read whose push-sum weight is not 0, and the one read last."""

    first: Kept = NOTHING
    last: Kept = NOTHING

    def remember(self, take: Read) -> ModelSnapshot:
        """Read a model by calling `take`, and store its module buffers."""
        snapshot = take()
        self.last = snapshot.kept
        if self.last is not NOTHING and self.first is NOTHING and has_mass(snapshot.weight):
            self.first = self.last
        return snapshot


def judge_average(
    read: Mapping[NodeId, Read], judge: Judge, judge_local: JudgeLocal, local: int, *, begun: int | None
) -> dict[str, float]:
    """Evaluate the average model over the nodes of `read`; return the metrics by name. Models are read repeatedly.

    Node i has a vector x_i and a push-sum weight w_i (1 without push-sum); its model is z_i = x_i / w_i. The average is
    the sum of all x_i over the sum of all w_i; if no node has weight, there is none. `consensus_distance` is the root
    of the mean over nodes of |z_i - average|^2; a node without weight has no z_i and is left out. At most `local`
    models are evaluated singly, by `judge_local`; `of_node` gives the names of their metrics. `weight_sum` is the sum
    of all w_i over `begun`, the number of nodes that have begun, including crashed ones (None without push-sum).
    """
    together = _short_rows(list(read.values()))
    average, weights = averaged(list(read.values())) if together is None else together.averaged()
    if average is None:
        return {"weight_sum": 0.0}
    figures = dict(judge(average))
    figures |= _spread(read, average, judge_local, local, None if together is None else together.squares(average))
    if begun is not None:
        figures["weight_sum"] = weights / begun
    return figures


class _ModelRows(NamedTuple):
    """Short model vectors as the rows `x` of one array, for fewer numpy calls with the same results, bit for bit."""

    x: NDArray[Any]
    weights: list[float]

    def averaged(self) -> tuple[Tensor | None, float]:
        """Return the average model and the sum of the push-sum weights, like the function `averaged`."""
        weights = 0.0
        for weight in self.weights:
            weights += weight
        if not weights or not self._with_mass().any():
            return None, weights
        total = np.add.reduce(self.x.astype(np.float64, copy=False), 0)
        return vector(total / weights, self.x.dtype), weights

    def _with_mass(self) -> NDArray[np.bool_]:
        """Return for each node whether its push-sum weight is not 0, as the function `has_mass` does for one node."""
        return np.abs(self.weights) >= LEAST_WEIGHT

    def squares(self, average: Tensor) -> list[float]:
        """Return the squared distance from `average` of each node's model, without nodes whose push-sum weight is 0."""
        weights = np.array(self.weights, self.x.dtype)
        some = self._with_mass()
        z = self.x[some] / weights[some, None]
        apart = (z - average.numpy()).astype(np.float64, copy=False)
        norms = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        return [float(norm * norm) for norm in norms]


def _short_rows(read: Sequence[Read]) -> _ModelRows | None:
    """Return the models as rows of one array if they are short vectors without torch; else None."""
    first = read[0]().x
    if not isinstance(first, Vector) or first.nbytes > SHORT_BYTES or first.size < 2:  # a column is summed in pairs
        return None
    snapshots = [take() for take in read]
    rows = np.frombuffer(b"".join([snapshot.x for snapshot in snapshots]), first.dtype)
    return _ModelRows(rows.reshape(len(snapshots), -1), [snapshot.weight for snapshot in snapshots])


def averaged(read: Sequence[Read]) -> tuple[Tensor | None, float]:
    """Return the average model (None if all push-sum weights are 0), and the sum of these weights.

    The average is the sum of the nodes' vectors over the sum of their weights; `read` has a function for each node.
    """
    total, weights, some, dtype = None, 0.0, False, None
    for snapshot in (take() for take in read):
        total = _copy(snapshot.x) if total is None else total.add_(snapshot.x)
        dtype = dtype or snapshot.x.dtype
        weights, some = weights + snapshot.weight, some or has_mass(snapshot.weight)
    assert total is not None
    return (total / weights).to(dtype) if weights and some else None, weights


def _copy(x: Tensor) -> Tensor:
    """Return a copy of `x` in float64."""
    double = x.double()
    return x.clone() if double is x else double


def _spread(
    read: Mapping[NodeId, Read],
    average: Tensor,
    judge_local: JudgeLocal,
    local: int,
    squares: list[float] | None,
) -> dict[str, float]:
    """Return the consensus distance, and the metrics of the first `local` models, each evaluated by `judge_local`.

    `squares` are the models' squared distances from their average, where they are known already.
    """
    apart = [] if squares is None else squares
    alone: dict[NodeId, Mapping[str, float]] = {}
    for node, take in read.items():
        if squares is not None and len(alone) >= local:
            break
        snapshot = take()
        if not has_mass(snapshot.weight):
            continue
        z = snapshot.x if snapshot.weight == 1.0 else snapshot.x / snapshot.weight
        if squares is None:
            apart.append(float((z - average).double().norm() ** 2))
        if len(alone) < local:
            alone[node] = judge_local(node, z)
    figures = {"consensus_distance": (sum(apart) / len(apart)) ** 0.5}
    for name in dict.fromkeys(name for each in alone.values() for name in each):
        start = next((start for start in MEANS if name.startswith(start)), None)
        if start is not None:
            found = [each[name] for each in alone.values() if name in each]
            figures[MEANS[start] + name.removeprefix(start)] = sum(found) / len(found)
    for node, each in alone.items():
        figures |= {of_node(name, node): value for name, value in each.items() if name.startswith(ALONE)}
    return figures
