"""What a fleet computes: every node's task, and how a model is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.scenario.model.schema import Scenario
from netdfl.training.base import Objective, Task
from netdfl.training.classification import Classification, CrossEntropy, Samples, answers
from netdfl.training.data.augmentations import none as no_augmentation
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.partitions import label_counts
from netdfl.training.flat import FlatModel
from netdfl.training.models.build import build as build_model
from netdfl.training.toy import Quadratic, optimum

Figures = Mapping[str, float]


class Problem(Protocol):
    """Made once per process, before nodes are forked from it; what it loads they share."""

    @property
    def dim(self) -> int:
        """Number of parameters."""
        ...

    def task(self, node: NodeId, device: str) -> Task:
        """The training task of one client."""
        ...

    def idle(self) -> Task:
        """The task of a node that holds no data: the server's."""
        ...

    def evaluate(self, x: Tensor) -> Figures:
        """Figures of one model on the test set, by the names of the record's metrics."""
        ...

    def evaluate_local(self, node: NodeId, x: Tensor) -> Figures:
        """Figures of the model of one node, by itself."""
        ...

    def partition(self) -> Mapping[str, Any] | None:
        """Who holds which labels: `classes` and `counts` per client; None where there are none."""
        ...


class Idle:
    """The task of a server: parameters to start from, and nothing to train."""

    num_samples = 0
    last_loss = float("nan")

    def __init__(self, start: Tensor, objective: Objective) -> None:
        """Start from `start`, shape (d,); `objective` is the clients' loss, for examples that are made."""
        self._start, self.objective = start, objective

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self._start.numel()

    def initial(self) -> Tensor:
        """A fresh copy of the common start."""
        return self._start.clone()

    def data(self, round: int) -> Any:
        """There is none."""
        raise AssertionError("a server does not train")


class ClassificationProblem:
    """A dataset shared out over the clients, and one model that all start from."""

    def __init__(self, scenario: Scenario, streams: Streams, num_clients: int) -> None:
        """Load the data and share it out. Raises DatasetError, or InputError where they do not fit."""
        spec: Any = scenario.task
        self.spec, self.streams, self.num_clients = spec, streams, num_clients
        self.data: Dataset = load_dataset(spec.dataset)
        try:
            self.parts = spec.dataset.partition.build(self.data.train_y, num_clients, streams)
            module = build_model(
                type(spec.model).__dict__["function"],
                self.data.shape,
                self.data.num_classes,
                streams.integer("model"),
                **spec.model.params,
            )
        except ValueError as error:
            raise InputError(str(error)) from error
        self.model = FlatModel(module)
        self.start = self.model.flat()

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.model.dim

    def task(self, node: NodeId, device: str) -> Classification:
        """The client's part of the training set, standardised, on its device."""
        x, y = self.data.train(self.parts[node])
        self.model.module.to(device)
        augment = self.spec.dataset.augment
        chosen = None if augment.kind == no_augmentation.__name__ else augment
        return Classification(
            self.model,
            self.start.to(device),
            Samples(torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)),
            node=node,
            streams=self.streams,
            batch_size=self.spec.batch_size,
            num_labels=self.data.num_classes,
            augment=None if chosen is None else lambda batch, rng: chosen.build(batch, rng),
        )

    def idle(self) -> Idle:
        """The server's task."""
        return Idle(self.start, CrossEntropy(self.model, self.data.shape, self.data.num_classes, self.streams))

    @cached_property
    def test(self) -> Samples:
        """The test set, standardised."""
        x, y = self.data.test()
        return Samples(torch.from_numpy(x), torch.from_numpy(y))

    def evaluate(self, x: Tensor) -> Figures:
        """Accuracy and loss on the whole test set."""
        found = answers(self.model, x, self.test, self.spec.eval_batch)
        return {"test_accuracy": found.accuracy, "test_loss": found.loss}

    def evaluate_local(self, node: NodeId, x: Tensor) -> Figures:
        """Accuracy on the whole test set; `personal_accuracy` is that for labels as the client's data has them."""
        found = answers(self.model, x, self.test, self.spec.eval_batch)
        if node >= self.num_clients:
            return {"test_accuracy": found.accuracy}
        own = found.accuracy_for(self.test.y, torch.from_numpy(self.counts[node]))
        return {"test_accuracy": found.accuracy} | ({} if own is None else {"personal_accuracy": own})

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Samples of each label at each client, shape (clients, labels)."""
        return label_counts(self.data.train_y, self.parts, self.data.num_classes)

    def partition(self) -> Mapping[str, Any]:
        """Label counts per client."""
        return {"classes": [str(c) for c in range(self.data.num_classes)], "counts": self.counts.tolist()}


def load_dataset(part: Any) -> Dataset:
    """The dataset that a scenario names, from the data root."""
    from netdfl.training.data.dataset import data_root

    found: Dataset = part.build(data_root())
    return found


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
    if scenario.task.kind == "train":
        return ClassificationProblem(scenario, streams, scenario.nodes)
    return ToyProblem(scenario, streams, scenario.nodes)
