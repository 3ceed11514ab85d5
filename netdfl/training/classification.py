"""The training task of one client: a model, its part of a dataset, cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from netdfl.core.errors import NotFiniteError, TrainingError
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.training.base import Gradient, LocalData
from netdfl.training.flat import FlatModel

Augment = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Samples:
    """Standardised inputs, shape (N, ...), and integer labels, shape (N,), on one device."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class CrossEntropy:
    """The loss of a model on any examples. See `Objective`."""

    model: FlatModel
    input_shape: tuple[int, ...]
    num_labels: int
    streams: Streams

    def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return cross_entropy(self.model.scores(at, x), y)


class Classification:
    """One client's own training task. The model may be shared by the nodes of a process."""

    def __init__(
        self,
        model: FlatModel,
        start: Tensor,
        samples: Samples,
        *,
        node: NodeId,
        streams: Streams,
        batch_size: int,
        num_labels: int = 0,
        augment: Augment | None = None,
    ) -> None:
        """Train `model` from `start`, shape (d,), on `samples` in batches of `batch_size`.

        `num_labels` is what is known of the data elsewhere; 0: as many as the samples show.
        """
        self.model = model
        self.samples = samples
        self.node = node
        self.streams = streams
        self.batch_size = batch_size
        self.augment = augment
        self.last_loss = float("nan")
        shown = int(samples.y.max()) + 1 if len(samples) else 0
        self.objective = CrossEntropy(model, tuple(samples.x.shape[1:]), num_labels or shown, streams)
        self._start = start
        self._grad = torch.empty_like(start)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.model.dim

    @property
    def num_samples(self) -> int:
        """Size of the client's training set."""
        return len(self.samples)

    def initial(self) -> Tensor:
        """A fresh copy of the common start."""
        return self._start.clone()

    def data(self, round: int) -> LocalData:
        """The client's data, shuffled by the stream of (node, round)."""
        return _Round(self, round)


class _Round:
    """One round's pass over a client's data; leaves the mean loss in the task's `last_loss`."""

    def __init__(self, task: Classification, round: int) -> None:
        self.task = task
        self.objective = task.objective
        self.shapes = task.model.shapes
        self.rng = task.streams.rng("batches", task.node, round)
        self.losses: list[Tensor] = []

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """One gradient per minibatch; the last batch of an epoch may be short. No samples: no steps."""
        self.losses.clear()
        count = 0
        if not len(self.task.samples):
            return self._finish()
        for _ in range(epochs if epochs is not None else 2**62):
            for indices in self._epoch():
                if steps is not None and count == steps:
                    return self._finish()
                yield self._gradient(indices)
                count += 1
        self._finish()

    def _epoch(self) -> Iterator[Tensor]:
        order = torch.from_numpy(self.rng.permutation(len(self.task.samples)))
        yield from order.to(self.task.samples.y.device).split(self.task.batch_size)

    def _gradient(self, indices: Tensor) -> Gradient:
        task, samples = self.task, self.task.samples
        x, y = samples.x[indices], samples.y[indices]
        if task.augment is not None:
            x = task.augment(x, self.rng)
        first = True

        def gradient(at: Tensor) -> Tensor:
            nonlocal first
            loss = cross_entropy(task.model.bind(at)(x), y)
            if first:
                self.losses.append(loss.detach())
                first = False
            return task.model.gradient(loss, task._grad)

        return gradient

    def _finish(self) -> None:
        """Raises NotFiniteError with the first step whose loss is not finite."""
        if not self.losses:
            self.task.last_loss = float("nan")
            return
        losses = torch.stack(self.losses)
        self.task.last_loss = float(losses.mean())
        if not isfinite(self.task.last_loss):
            bad = losses.isfinite().logical_not().nonzero().flatten().tolist()
            step = bad[0] if bad else len(losses) - 1
            raise NotFiniteError(f"the training loss became {float(losses[step])}", step)

    def loss(self, at: Tensor) -> float:
        """Mean loss over the client's whole training set at `at`."""
        return evaluate(self.task.model, at, self.task.samples)[1]


@torch.no_grad()
def evaluate(model: FlatModel, at: Tensor, samples: Samples, batch: int = 1024) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of the model at the flat vector `at` over `samples`."""
    if not len(samples):
        raise TrainingError("can't evaluate on an empty set")
    module, correct, loss = model.bind(at), 0, 0.0
    for x, y in zip(samples.x.split(batch), samples.y.split(batch), strict=True):
        scores = module(x)
        correct += int((scores.argmax(1) == y).sum())
        loss += float(cross_entropy(scores, y, reduction="sum"))
    return correct / len(samples), loss / len(samples)
