"""The training task of one client: a model, the client's part of the data, and a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.errors import NotFiniteError, TrainingError
from netdfl.core.rng import Key, Streams
from netdfl.core.types import NodeId
from netdfl.training.base import NOTHING, Gradient, Kept, LocalData
from netdfl.training.data.examples import Examples, Samples, Tree, in_batches, joined, leaves, mapped, shape_of
from netdfl.training.drawing import is_beside_others, seeded
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import applied
from netdfl.training.tasks.losses import LEFT_OUT, entropy
from netdfl.training.tasks.outputs import on_cpu, together

Augment = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True)
class CrossEntropy:
    """The loss of a model on given examples: cross-entropy, unless the task defines a loss."""

    model: FlatModel
    input_shape: tuple[int, ...]
    num_labels: int
    streams: Streams

    def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of the model at the flat vector `at` for inputs `x` and targets `y`."""
        return self.model.loss(self.model.scores(at, x), y)

    def drawing(self, *key: Key) -> AbstractContextManager[None]:
        """Return a context in which dropout masks come from the stream `key`."""
        return self.model.drawing(self.streams.integer("dropout", *key))


class Classification:
    """One client's training task. The nodes of a process may share its model object."""

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

        `num_labels` is the known number of labels; with 0 it is taken from the samples. `drop_last` leaves out the last
        minibatch of an epoch where it is short, and not the only one.
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
        self.kept: Kept | None = None
        self._start = start
        self._grad = torch.empty_like(start)
        model.forget(node)

    @property
    def steps_per_epoch(self) -> int:
        """The number of minibatches in a pass over the data."""
        size = len(self.samples)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)

    @property
    def in_rows(self) -> bool:
        """Whether this client's steps can be computed with other nodes': only with inputs in memory, as one tensor."""
        plain = isinstance(self.samples, Samples) and isinstance(self.samples.x, Tensor)
        return plain and self.model.stackable and self.model.in_rows and not self.drop_last

    def first(self) -> tuple[Tree, Tree]:
        """Return a minibatch for trial computations on the model."""
        return self.samples.take(torch.arange(min(self.batch_size, len(self.samples))))

    def initial(self) -> Tensor:
        """Return the common initial vector, which all nodes of this process share until they train."""
        return self._start

    def whole(self, x: Tensor, kept: Kept | None, weight: float) -> tuple[Tensor, Kept]:
        """Return the vector at which the model `x` is evaluated, and the module state in `kept` that the vector lacks.

        Where running statistics stay local, they are appended to `x`, multiplied by the push-sum `weight`.
        """
        kept, buffers = kept or NOTHING, self.model.buffers
        others = {name: value for name, value in kept.items() if name not in buffers.names}
        if self.model.policy != "local" or not buffers.size:
            return x, others
        return torch.cat([x, buffers.joined(kept).to(x) * weight]), others

    def data(self, round: int) -> LocalData:
        """Return the client's data for one round, shuffled by a random stream of (node, round)."""
        return RoundPass(self, round)


class DrawnBatches(NamedTuple):
    """The minibatches of one round: step s uses `x[places[s, :sizes[s]]]`, `y` likewise; `places` is (S, B)."""

    x: Tensor
    y: Tensor
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Minibatch:
    """One minibatch, whose every call returns the same inputs and targets, even if a caller has overwritten them."""

    def __init__(self, model: FlatModel, x: Tree, y: Tree, again: Callable[[], tuple[Tree, Tree]] | None) -> None:
        """Store `x` and `y`; `again` reads both anew. If it is None, and user code may write to them, keep a copy."""
        self._model, self._given, self._versions = model, (x, y), -1
        if again is None and model.perceptron is None:
            again = partial(mapped, mapped((x, y), Tensor.clone), Tensor.clone)
        self._again = again

    def __call__(self) -> tuple[Tree, Tree]:
        """Return inputs and targets, restored if they were changed."""
        versions = sum(tensor._version for tensor in leaves(self._given))
        if self._versions == -1:
            self._versions = versions
        elif self._again is not None and (versions != self._versions or self._model.writes_examples):
            self._given = self._again()
            self._versions = sum(tensor._version for tensor in leaves(self._given))
        return self._given


class RoundPass:
    """One round of minibatches of a client's data; at its end the mean loss is stored in the task's `last_loss`."""

    def __init__(self, task: Classification, round: int) -> None:
        self.task = task
        self.objective = task.objective
        self.num_samples = task.num_samples
        self.shapes = task.model.shapes
        self.still = task.model.still
        self.statistics: Tensor | None = None
        self.kept: Kept = NOTHING
        self.written: Tensor | None = None
        self._begun: Tensor | None = None
        self.round = round
        self.rng = task.streams.rng("batches", task.node, round)

    def drawing(self, *, anyway: bool) -> AbstractContextManager[object]:
        """Return a context in which draws from the process's global random generators depend only on (node, round).

        Only a user's code makes such draws: without it the context has no effect, unless `anyway` is true.
        """
        task = self.task
        ours = task.model.perceptron is not None and isinstance(task.samples, Samples)
        if is_beside_others() or (ours and not anyway):
            return nullcontext()
        return seeded(task.streams.integer("training", task.node, self.round), task.device)

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """Yield one gradient per minibatch; the last batch of an epoch may be short. Without samples, yield nothing."""
        losses: list[Tensor] = []
        model = self.task.model
        with model.used_by(self.task.node, self.kept):
            if model.buffers.size:
                begun = model.buffers.start if self.statistics is None else self.statistics
                model.buffers.write(model.bind(self.task._start, training=True), begun)
            for step, batch in enumerate(self._batches(epochs, steps)):
                yield self._gradient(step, batch, losses)
            if model.buffers.size:
                read = model.buffers.read(model.bind(self.task._start, training=True))
                self.statistics = read.to(self.task._start)
            self.kept = model.kept()
        self.finish(torch.stack(losses) if losses else None)

    @property
    def writes(self) -> bool:
        """Whether computing a gradient may overwrite the vector given to it; if so, `written` has the new values."""
        return self.task.model.writes

    def num_steps(self, *, epochs: int | None = None, steps: int | None = None) -> int:
        """Return the number of gradients that `steps` yields."""
        if not len(self.task.samples):
            return 0
        passes = math.inf if epochs is None else epochs * self.task.steps_per_epoch
        return int(min(passes, math.inf if steps is None else steps))

    def drawn(self, *, epochs: int | None = None, steps: int | None = None) -> DrawnBatches:
        """Return at once all minibatches that `self.steps` would use, in its order; there must be at least one."""
        task, num = self.task, self.num_steps(epochs=epochs, steps=steps)
        samples, size = task.samples, task.batch_size
        assert isinstance(samples, Samples), "what is read when it is asked for is not laid out in rows"
        if task.augment is not None:
            x, y = zip(*(batch() for batch in self._batches(epochs, steps)), strict=True)
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

    def _batches(self, epochs: int | None, steps: int | None) -> Iterator[Minibatch]:
        task, samples = self.task, self.task.samples
        left = self.num_steps(epochs=epochs, steps=steps)
        drawn, taken = isinstance(samples, Samples), 0
        while left:
            order = torch.from_numpy(self.rng.permutation(len(samples)))
            if drawn:
                order = order.to(task.device)
            for indices in order.split(task.batch_size)[: min(left, task.steps_per_epoch)]:
                x, y = samples.take(indices) if drawn else self._read(indices, taken)
                if task.augment is not None:
                    x = self._augmented(x, taken)
                again = partial(samples.take, indices) if drawn and task.augment is None else None
                yield Minibatch(task.model, x, y, again)
                left, taken = left - 1, taken + 1

    def _read(self, indices: Tensor, step: int) -> tuple[Tree, Tree]:
        """Read the examples at `indices`; random draws of a user's reader depend only on node, round and `step`."""
        task = self.task
        with seeded(task.streams.integer("reading", task.node, self.round, step), torch.device("cpu")):
            return task.samples.take(indices)

    def _augmented(self, x: Tensor, step: int) -> Tensor:
        task = self.task
        assert task.augment is not None
        with seeded(task.streams.integer("augmenting", task.node, self.round, step), torch.device("cpu")):
            return task.augment(x, self.rng)

    def _gradient(self, step: int, batch: Minibatch, losses: list[Tensor]) -> Gradient:
        task, model, first = self.task, self.task.model, True
        masks = task.node, self.round, step

        def gradient(at: Tensor) -> Tensor:
            nonlocal first
            if at is self._begun and model.perceptron is None:
                at = at.clone()  # the node's own vector, which nothing may write to
            with task.objective.drawing(*masks), nullcontext() if first else model.statistics():
                loss = model.slope(at, *batch(), task._grad)
            if first:
                self.written = model.written(at)
                losses.append(loss)
                first = False
            return task._grad

        return gradient

    def finish(self, losses: Tensor | None) -> None:
        """Store the mean of the steps' losses, shape (S,). Raises NotFiniteError for the first non-finite one."""
        if losses is None:
            self.task.last_loss = float("nan")
            return
        self.task.last_loss = float(losses.mean())
        if not math.isfinite(self.task.last_loss):
            bad = losses.isfinite().logical_not().nonzero().flatten().tolist()
            step = bad[0] if bad else len(losses) - 1
            raise NotFiniteError(f"the training loss became {float(losses[step])}", step)

    def loss(self, at: Tensor) -> float:
        """Return the mean loss over the client's whole training set at `at`, in evaluation mode."""
        task, model, kept = self.task, self.task.model, NOTHING
        if len(at) == model.dim:
            at, kept = task.whole(at, task.kept, 1.0)
        with seeded(task.streams.integer("loss", task.node, self.round), task.device), model.used_by(None, kept):
            return self._loss(at)

    def _loss(self, at: Tensor) -> float:
        model, samples = self.task.model, self.task.samples
        if model.buffers.size and len(at) == model.num_trained:
            at = model.settled(at, (x for x, _ in in_batches(samples, 256)))
        if isinstance(samples, Samples) and self.task.in_rows:
            return answers(model, at, samples).loss
        return outcome(model, at, samples).loss

    # running statistics

    def begin(self, z: Tensor, kept: Kept | None) -> None:
        """Start local steps at the model `z`, shape (d,), with its running statistics and the module state `kept`."""
        model, self._begun = self.task.model, z
        _, self.kept = self.task.whole(z, kept, 1.0)
        self.task.kept = kept
        if model.buffers.size and model.policy != "reset":
            self.statistics = z[model.num_trained :].clone() if model.still else model.buffers.joined(kept or NOTHING)

    def ended(self, x: Tensor, weight: float) -> tuple[Tensor, Kept | None]:
        """Return `x`, the result of the steps, with new running statistics times `weight`; and other module state."""
        model, kept = self.task.model, self.kept
        if model.buffers.size and self.statistics is not None:
            if model.still:
                x = torch.cat([x[: model.num_trained], self.statistics * weight])
            elif model.policy == "local":
                kept = {**kept, **model.buffers.named(self.statistics)}
        self.task.kept = kept or None
        return x, self.task.kept


class Answers(NamedTuple):
    """A model's predictions for N samples: whether each is `right`, shape (N,), and the mean cross-entropy `loss`."""

    right: Tensor
    loss: float

    @property
    def accuracy(self) -> float:
        """The share of correct predictions."""
        return int(self.right.sum()) / len(self.right)

    def accuracy_for(self, labels: Tensor, counts: Tensor) -> float | None:
        """Return the expected accuracy on samples whose labels are as frequent as in `counts`, shape (C,).

        `labels` are the labels of the N evaluated samples. Labels without a sample are ignored; None if all are.
        """
        size = len(counts)
        shown = torch.bincount(labels, minlength=size).double()
        right = torch.bincount(labels, self.right.double(), minlength=size)
        weights = torch.where(shown > 0, counts.double(), 0.0)
        total = float(weights.sum())
        return float((weights * right / shown.clamp(min=1)).sum()) / total if total else None


@torch.no_grad()
def answers(model: FlatModel, at: Tensor, samples: Samples, batch: int = 1024) -> Answers:
    """Evaluate the model at the flat vector `at` on `samples`, in evaluation mode, on the device of `at`."""
    if not len(samples):
        raise TrainingError("can't evaluate on an empty set")
    module, right, loss = model.bind(_apart(model, at), training=False), list[Tensor](), 0.0
    for first in range(0, len(samples), batch):
        both = mapped((samples.x, samples.y), itemgetter(slice(first, first + batch)))
        x, y = mapped(both, lambda tensor: tensor.to(at.device))
        scores = applied(module, _apart(model, x))
        right.append((scores.argmax(1) == y).cpu())
        loss += float(entropy(scores, y, "sum"))
    return Answers(torch.cat(right), loss / len(samples))


def _apart(model: FlatModel, x: Tree) -> Tree:
    """Return `x`, or a copy of it if the model may run a user's module, which may overwrite its input."""
    return x if model.perceptron is not None else mapped(x, Tensor.clone)


class ModelOutputs(NamedTuple):
    """The outputs of a model for all N examples, their targets, and the mean loss."""

    outputs: Any
    targets: Tree
    loss: float


@torch.no_grad()
def outcome(model: FlatModel, at: Tensor, examples: Examples, batch: int = 1024) -> ModelOutputs:
    """Return the outputs of the model at the flat vector `at` for `examples`, in evaluation mode.

    The device of `at` computes them; they are returned on the CPU.
    """
    if not len(examples):
        raise TrainingError("can't evaluate on an empty set")
    module = model.bind(_apart(model, at), training=False)
    found, loss, total = list[tuple[Any, Tree]](), 0.0, 0.0
    for x, y in in_batches(examples.to(at.device), batch):
        outputs, weight = applied(module, x), _weight(y)
        found.append((on_cpu(outputs), mapped(y, lambda tensor: tensor.clone().cpu())))
        loss, total = loss + (float(model.loss(outputs, y)) * weight if weight else 0.0), total + weight
    outputs, targets = zip(*found, strict=True)
    return ModelOutputs(together(list(outputs)), joined(list(targets)), loss / total if total else math.nan)


def _weight(y: Tree) -> float:
    """Return the weight of a minibatch's mean loss: its number of examples, without those that the loss ignores."""
    size = len(next(leaves(y)))
    if not isinstance(y, Tensor) or y.is_floating_point() or not y.numel():
        return size
    return int((y != LEFT_OUT).sum()) / (y.numel() // size)
