"""The training task of one client: a model, its part of the data, a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from netdfl.core.errors import NotFiniteError, TrainingError
from netdfl.core.rng import Key, Streams
from netdfl.core.types import NodeId
from netdfl.training.base import Gradient, LocalData
from netdfl.training.data.examples import Examples, Samples, Tree, in_batches, joined, leaves, mapped, shape_of
from netdfl.training.drawing import is_beside_others, seeded
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import applied
from netdfl.training.tasks.losses import LEFT_OUT
from netdfl.training.tasks.outputs import on_cpu, together

Augment = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True)
class CrossEntropy:
    """The loss of a model on any examples. See `Objective`."""

    model: FlatModel
    input_shape: tuple[int, ...]
    num_labels: int
    streams: Streams

    def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss, cross-entropy where nothing else was asked for."""
        return self.model.loss(self.model.scores(at, x), y)

    def drawing(self, *key: Key) -> AbstractContextManager[None]:
        """Dropout's masks within are those of the stream `key`."""
        return self.model.drawing(self.streams.integer("dropout", *key))


class Classification:
    """One client's own training task. The model may be shared by the nodes of a process."""

    def __init__(
        self,
        model: FlatModel,
        start: Tensor,
        samples: Examples,
        *,
        node: NodeId,
        streams: Streams,
        batch_size: int,
        num_labels: int = 0,
        augment: Augment | None = None,
        drop_last: bool = False,
    ) -> None:
        """Train `model` from `start`, shape (d,), on `samples` in batches of `batch_size`.

        `num_labels` is what is known of the data elsewhere; 0: as many as the samples show. `drop_last` leaves out
        the last minibatch of an epoch where it is short, and not the only one.
        """
        self.model, self.dim = model, model.dim
        self.samples, self.num_samples = samples, len(samples)
        self.node = node
        self.streams = streams
        self.batch_size = batch_size
        self.augment = augment
        self.last_loss = float("nan")
        self.drop_last = drop_last and len(samples) > batch_size
        self.device = start.device
        y = samples.y if isinstance(samples, Samples) else None
        shown = num_labels or (int(y.max()) + 1 if isinstance(y, Tensor) and len(samples) else 0)
        shape = shape_of(samples.take(torch.arange(1))[0]) if len(samples) else ()
        self.objective = CrossEntropy(model, shape, shown, streams)
        self.kept: Tensor | None = None
        self._start = start
        self._grad = torch.empty_like(start)

    @property
    def steps_per_epoch(self) -> int:
        """Minibatches of a pass over the data."""
        size = len(self.samples)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)

    @property
    def in_rows(self) -> bool:
        """Whether its steps can be computed beside other nodes', as rows: examples in memory, one tensor each."""
        plain = isinstance(self.samples, Samples) and isinstance(self.samples.x, Tensor)
        return plain and self.model.stackable and self.model.in_rows and not self.drop_last

    def first(self) -> tuple[Tree, Tree]:
        """A minibatch to try things on."""
        return self.samples.take(torch.arange(min(self.batch_size, len(self.samples))))

    def initial(self) -> Tensor:
        """The common start itself, which every node of this process holds until it has one of its own."""
        return self._start

    def whole(self, x: Tensor, kept: Tensor | None, weight: float) -> Tensor:
        """`x`, and the statistics that the node keeps for itself, as numerators: what it is judged by."""
        if self.model.policy != "local" or not self.model.buffers.size:
            return x
        return torch.cat([x, (self.model.buffers.start if kept is None else kept).to(x) * weight])

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
        self.still = task.model.still
        self.statistics: Tensor | None = None
        self.round = round
        self.rng = task.streams.rng("batches", task.node, round)

    def drawing(self, *, anyway: bool) -> AbstractContextManager[object]:
        """What else is drawn within, by a user's code or `anyway`, is of the stream of (node, round)."""
        task = self.task
        ours = task.model.perceptron is not None and isinstance(task.samples, Samples)
        if is_beside_others() or (ours and not anyway):
            return nullcontext()
        return seeded(task.streams.integer("training", task.node, self.round), task.device)

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """One gradient per minibatch; the last batch of an epoch may be short. No samples: no steps."""
        losses: list[Tensor] = []
        model = self.task.model
        if model.buffers.size:
            begun = model.buffers.start if self.statistics is None else self.statistics
            model.buffers.write(model.bind(self.task._start, training=True), begun)
        for step, (x, y) in enumerate(self._batches(epochs, steps)):
            yield self._gradient(step, x, y, losses)
        if model.buffers.size:
            self.statistics = model.buffers.read(model.bind(self.task._start, training=True)).to(self.task._start)
        self.finish(torch.stack(losses) if losses else None)

    def num_steps(self, *, epochs: int | None = None, steps: int | None = None) -> int:
        """How many gradients `steps` gives."""
        if not len(self.task.samples):
            return 0
        passes = math.inf if epochs is None else epochs * self.task.steps_per_epoch
        return int(min(passes, math.inf if steps is None else steps))

    def drawn(self, *, epochs: int | None = None, steps: int | None = None) -> DrawnBatches:
        """The minibatches of `steps`, drawn in the same order; at least one."""
        task, num = self.task, self.num_steps(epochs=epochs, steps=steps)
        samples, size = task.samples, task.batch_size
        assert isinstance(samples, Samples), "what is read when it is asked for is not laid out in rows"
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

    def _batches(self, epochs: int | None, steps: int | None) -> Iterator[tuple[Tree, Tree]]:
        task, samples = self.task, self.task.samples
        left = self.num_steps(epochs=epochs, steps=steps)
        drawn, taken = isinstance(samples, Samples), 0
        while left:
            order = torch.from_numpy(self.rng.permutation(len(samples)))
            if drawn:
                order = order.to(task.device)
            for indices in order.split(task.batch_size)[: min(left, task.steps_per_epoch)]:
                x, y = samples.take(indices) if drawn else self._read(indices, taken)
                yield (x if task.augment is None else self._augmented(x, taken)), y
                left, taken = left - 1, taken + 1

    def _read(self, indices: Tensor, step: int) -> tuple[Tree, Tree]:
        """Examples that may be drawn at random as they are read: by the named stream of the step."""
        task = self.task
        with seeded(task.streams.integer("reading", task.node, self.round, step), torch.device("cpu")):
            return task.samples.take(indices)

    def _augmented(self, x: Tensor, step: int) -> Tensor:
        task = self.task
        assert task.augment is not None
        with seeded(task.streams.integer("augmenting", task.node, self.round, step), torch.device("cpu")):
            return task.augment(x, self.rng)

    def _gradient(self, step: int, x: Tree, y: Tree, losses: list[Tensor]) -> Gradient:
        task, first = self.task, True
        masks = task.node, self.round, step

        def gradient(at: Tensor) -> Tensor:
            nonlocal first
            with task.objective.drawing(*masks), nullcontext() if first else task.model.statistics():
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
        task = self.task
        with seeded(task.streams.integer("loss", task.node, self.round), task.device):
            return self._loss(at)

    def _loss(self, at: Tensor) -> float:
        task, model = self.task, self.task.model
        if model.buffers.size and len(at) == model.num_trained:
            if model.policy == "local":
                at = task.whole(at, task.kept, 1.0)
            else:
                at = model.settled(at, (x for x, _ in in_batches(task.samples, 256)))
        samples = task.samples
        if isinstance(samples, Samples) and task.in_rows:
            return answers(model, at, samples).loss
        return outcome(model, at, samples).loss

    # running statistics

    def begin(self, z: Tensor, kept: Tensor | None) -> None:
        """Local steps begin at the model `z`, shape (d,), with its running statistics, or with those `kept`."""
        model = self.task.model
        if model.buffers.size and model.policy != "reset":
            self.statistics = z[model.num_trained :].clone() if model.still else kept
            self.task.kept = kept

    def ended(self, x: Tensor, weight: float) -> tuple[Tensor, Tensor | None]:
        """`x`, where the local steps have led, with the statistics of x / w; or these, where the node keeps them."""
        model = self.task.model
        if not model.buffers.size or self.statistics is None or model.policy == "reset":
            return x, None
        if model.policy == "local":
            self.task.kept = self.statistics
            return x, self.statistics
        return torch.cat([x[: model.num_trained], self.statistics * weight]), None


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
        scores = applied(module, x)
        right.append(scores.argmax(1) == y)
        loss += float(cross_entropy(scores, y, reduction="sum"))
    return Answers(torch.cat(right), loss / len(samples))


class Outcome(NamedTuple):
    """What a model gives for all of N examples, and its mean loss over them."""

    outputs: Any
    targets: Tree
    loss: float


@torch.no_grad()
def outcome(model: FlatModel, at: Tensor, examples: Examples, batch: int = 1024) -> Outcome:
    """What the model at the flat vector `at` makes of `examples`, in evaluation mode, on the CPU."""
    if not len(examples):
        raise TrainingError("can't evaluate on an empty set")
    module, found, loss, total = model.bind(at, training=False), list[tuple[Any, Tree]](), 0.0, 0.0
    for x, y in in_batches(examples, batch):
        outputs = applied(module, x)
        weight = _weight(y)
        loss, total = loss + (float(model.loss(outputs, y)) * weight if weight else 0.0), total + weight
        found.append((on_cpu(outputs), mapped(y, lambda tensor: tensor.cpu())))
    outputs, targets = zip(*found, strict=True)
    return Outcome(together(list(outputs)), joined(list(targets)), loss / total if total else math.nan)


def _weight(y: Tree) -> float:
    """What a minibatch's mean loss counts: as many as it has examples, without the share that its loss leaves out."""
    size = len(next(leaves(y)))
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() < 2 or not y.numel():
        return size
    return int((y != LEFT_OUT).sum()) / (y.numel() // size)
