"""What a fleet computes: every node's task, and how a model is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.host.problem import Figures, Idle, Problem
from netdfl.host.training_problem import TrainingProblem
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.training.toy import Quadratic, optimum


class ToyProblem:
    """A toy problem whose answer is known: the mean of the starts, or the minimum of the mean quadratic."""

    def __init__(self, scenario: Scenario, streams: Streams, num_clients: int) -> None:
        """Make every client's task; they are small."""
        part: Any = scenario.task
        self.tasks: list[Quadratic] = [part.build(node, streams) for node in range(num_clients)]
        self.answer = optimum(self.tasks)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.answer.numel()

    @property
    def judged_dim(self) -> int:
        """The same."""
        return self.dim

    def task(self, node: NodeId, device: str) -> Quadratic:
        """The client's quadratic; toy problems stay on the CPU."""
        return self.tasks[node]

    def idle(self) -> Idle:
        """The server's task: it starts where client 0 does, and its loss has the clients' mean curvature."""
        first = self.tasks[0]
        apart = torch.stack([task.curvature - first.curvature for task in self.tasks]).mean(0)
        return Idle(first.start, replace(first.objective, curvature=first.curvature + apart))

    def evaluate(self, x: Tensor) -> Figures:
        """`error`: the root mean square distance to the answer, per coordinate."""
        return {"error": float((x - self.answer).square().mean().sqrt())}

    def evaluate_local(self, node: NodeId, x: Tensor) -> Figures:
        """As the average is."""
        return self.evaluate(x)

    def partition(self) -> None:
        """There are no labels."""
        return


def make_problem(scenario: Scenario, streams: Streams) -> Problem:
    """The scenario's problem."""
    if isinstance(scenario.task, Training):
        return TrainingProblem(scenario, streams, scenario.nodes)
    return ToyProblem(scenario, streams, scenario.nodes)
