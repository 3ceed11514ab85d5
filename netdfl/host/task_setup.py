"""A fleet's problem, made from its scenario: every node's task, and the evaluation of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.plain_parts import needs_torch
from netdfl.core.errors import InputError
from netdfl.core.no_memory import is_of_memory, lack_of_memory
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.host.problem import Figures, FleetProblem, IdleTask
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train, Training
from netdfl.training.base import NOTHING, Kept
from netdfl.training.catalog import TRAINING_FREE, without_torch
from netdfl.training.toy import Quadratic, optimum

if TYPE_CHECKING:
    from torch import Tensor


class ToyProblem:
    """A toy problem with a known solution: the mean of the starting points, or the minimum of the mean quadratic."""

    notes: Sequence[str] = ()
    shares_digest = ""
    """Empty: there are no examples to share out."""

    def __init__(self, scenario: Scenario, streams: Streams, num_clients: int, *, plain: bool = False) -> None:
        """Create every client's task. `plain`: use vectors that do not need torch."""
        part: Any = scenario.task
        build = partial(without_torch, **part.params) if plain else part.build
        self.tasks: list[Quadratic] = [build(node, streams) for node in range(num_clients)]
        self.answer = optimum(self.tasks)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.answer.numel()

    @property
    def judged_dim(self) -> int:
        """Number of coordinates."""
        return self.dim

    def task(self, node: NodeId, device: str) -> Quadratic:
        """Return the client's quadratic objective, always on the CPU."""
        return self.tasks[node]

    def idle(self, device: str) -> IdleTask:
        """Return the server's task, on the CPU: it starts at client 0's point, with the clients' mean curvature."""
        import torch

        first = self.tasks[0]
        apart = torch.stack([task.curvature - first.curvature for task in self.tasks]).mean(0)
        return IdleTask(first.start, replace(first.objective, curvature=first.curvature + apart))

    def move_to(self, device: str) -> None:
        """Do nothing: toy problems stay on the CPU."""

    def evaluate(self, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        """Return `error`: the root mean square distance to the solution, per coordinate."""
        return {"error": float((x - self.answer).square().mean().sqrt())}

    def evaluate_local(self, node: NodeId, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        """Return no figures: for toy problems the average's error and the consensus distance are enough."""
        return {}

    def partition(self) -> None:
        """Return None, because there are no labels."""
        return


def is_plain(scenario: Scenario, algorithm: Algorithm) -> bool:
    """Return whether no model is trained and no part of the algorithm needs torch."""
    training_free = not isinstance(scenario.task, Training) and scenario.task.kind in TRAINING_FREE
    return training_free and not needs_torch(algorithm)


def make_problem(scenario: Scenario, streams: Streams, *, plain: bool = False) -> FleetProblem:
    """Create the scenario's problem; `plain`: on vectors that do not need torch, allowed if `is_plain` holds."""
    if isinstance(scenario.task, Training):
        try:
            return _training_problem(scenario, streams)
        except Exception as error:
            if not is_of_memory(error):
                raise
            what = f"task: no memory was left to load the data and make the model ({lack_of_memory(error)})"
            raise InputError(f"{what}; take a smaller model or less data, or a machine with more memory") from error
    return ToyProblem(scenario, streams, scenario.nodes, plain=plain)


def _training_problem(scenario: Scenario, streams: Streams) -> FleetProblem:
    if isinstance(scenario.task, Train) and scenario.task.dataset.kind == "client_files":
        from netdfl.host.apart_problem import ApartProblem

        return ApartProblem(scenario, streams, scenario.nodes)
    from netdfl.host.training_problem import TrainingProblem

    return TrainingProblem(scenario, streams, scenario.nodes)
