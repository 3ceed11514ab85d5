"""The training task of one client: a model, its part of a dataset, cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from netdfl.core.errors import NotFiniteError, TrainingError
from netdfl.core.rng import Key, Streams
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

    def drawing(self, *key: Key) -> AbstractContextManager[None]:
        """Dropout's masks within are those of the stream `key`."""
        return self.model.drawing(self.streams.integer("dropout", *key))


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
        return RoundPass(self, round)


class DrawnBatches(NamedTuple):
    """A round's minibatches at once: step s is `x[places[s, :sizes[s]]]`, and `y` likewise. `places` is (S, B)."""

    x: Tensor
    y: Tensor
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]


class RoundPass:
    """One round's pass over a client's data; leaves the mean loss in the task's `last_loss`."""

    def __init__(self, task: Classification, round: int) -> None:
        self.task = task
        self.objective = task.objective
        self.num_samples = task.num_samples
        self.shapes = task.model.shapes
        self.round = round
        self.rng = task.streams.rng("batches", task.node, round)

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """One gradient per minibatch; the last batch of an epoch may be short. No samples: no steps."""
        losses: list[Tensor] = []
        for step, (x, y) in enumerate(self._batches(epochs, steps)):
            yield self._gradient(step, x, y, losses)
        self.finish(torch.stack(losses) if losses else None)

    def num_steps(self, *, epochs: int | None = None, steps: int | None = None) -> int:
        """How many gradients `steps` gives."""
        if not len(self.task.samples):
            return 0
        passes = math.inf if epochs is None else epochs * -(-len(self.task.samples) // self.task.batch_size)
        return int(min(passes, math.inf if steps is None else steps))

    def drawn(self, *, epochs: int | None = None, steps: int | None = None) -> DrawnBatches:
        """The minibatches of `steps`, drawn in the same order; at least one."""
        task, num = self.task, self.num_steps(epochs=epochs, steps=steps)
        samples, size = task.samples, task.batch_size
        if task.augment is not None:
            x, y = zip(*self._batches(epochs, steps), strict=True)
            counts = np.array([len(labels) for labels in y])
            starts = np.cumsum(counts) - counts
            index = starts[:, None] + np.minimum(np.arange(size), counts[:, None] - 1)
            return DrawnBatches(torch.cat(x), torch.cat(y), index, counts)
        per_pass = -(-len(samples) // size)
        index = np.zeros((-(-num // per_pass), per_pass * size), np.int64)
        for row in index:
            row[: len(samples)] = self.rng.permutation(len(samples))
        counts = np.full(per_pass, size)
        counts[-1] = len(samples) - (per_pass - 1) * size
        return DrawnBatches(samples.x, samples.y, index.reshape(-1, size)[:num], np.tile(counts, len(index))[:num])

    def _batches(self, epochs: int | None, steps: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        task, samples = self.task, self.task.samples
        left = self.num_steps(epochs=epochs, steps=steps)
        while left:
            order = torch.from_numpy(self.rng.permutation(len(samples))).to(samples.y.device)
            for indices in order.split(task.batch_size)[:left]:
                x, y = samples.x.index_select(0, indices), samples.y.index_select(0, indices)
                yield (x if task.augment is None else task.augment(x, self.rng)), y
                left -= 1

    def _gradient(self, step: int, x: Tensor, y: Tensor, losses: list[Tensor]) -> Gradient:
        task, first = self.task, True
        masks = task.node, self.round, step

        def gradient(at: Tensor) -> Tensor:
            nonlocal first
            with task.objective.drawing(*masks):
                loss = task.model.slope(at, x, y, task._grad)
            if first:
                losses.append(loss)
                first = False
            return task._grad

        return gradient

    def finish(self, losses: Tensor | None) -> None:
        """Keep the mean of the steps' losses, shape (S,). Raises NotFiniteError with the first that is not finite."""
        if losses is None:
            self.task.last_loss = float("nan")
            return
        self.task.last_loss = float(losses.mean())
        if not math.isfinite(self.task.last_loss):
            bad = losses.isfinite().logical_not().nonzero().flatten().tolist()
            step = bad[0] if bad else len(losses) - 1
            raise NotFiniteError(f"the training loss became {float(losses[step])}", step)

    def loss(self, at: Tensor) -> float:
        """Mean loss over the client's whole training set at `at`, in evaluation mode."""
        return evaluate(self.task.model, at, self.task.samples)[1]


class Answers(NamedTuple):
    """Which of N samples a model was right about, bool, shape (N,), and its mean cross-entropy over them."""

    right: Tensor
    loss: float

    @property
    def accuracy(self) -> float:
        """The share that it was right about."""
        return int(self.right.sum()) / len(self.right)

    def accuracy_for(self, labels: Tensor, counts: Tensor) -> float | None:
        """The accuracy to expect where labels come as often as in `counts`, shape (C,); `labels` are the samples'.

        Labels that no sample has do not count; None where there are no others.
        """
        size = len(counts)
        shown = torch.bincount(labels, minlength=size).double()
        right = torch.bincount(labels, self.right.double(), minlength=size)
        weights = torch.where(shown > 0, counts.double(), 0.0)
        total = float(weights.sum())
        return float((weights * right / shown.clamp(min=1)).sum()) / total if total else None


@torch.no_grad()
def answers(model: FlatModel, at: Tensor, samples: Samples, batch: int = 1024) -> Answers:
    """What the model at the flat vector `at` makes of `samples`, in evaluation mode."""
    if not len(samples):
        raise TrainingError("can't evaluate on an empty set")
    module, right, loss = model.bind(at, training=False), list[Tensor](), 0.0
    for x, y in zip(samples.x.split(batch), samples.y.split(batch), strict=True):
        scores = module(x)
        right.append(scores.argmax(1) == y)
        loss += float(cross_entropy(scores, y, reduction="sum"))
    return Answers(torch.cat(right), loss / len(samples))


def evaluate(model: FlatModel, at: Tensor, samples: Samples, batch: int = 1024) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of the model at the flat vector `at` over `samples`, in evaluation mode."""
    found = answers(model, at, samples, batch)
    return found.accuracy, found.loss
