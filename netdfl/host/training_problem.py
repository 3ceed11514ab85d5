"""The problem of training a model, netdfl's own or a user's, on data distributed over the clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from netdfl.core.errors import InputError
from netdfl.core.rng import Key, Streams
from netdfl.core.types import Json, NodeId
from netdfl.host.problem import Figures, IdleTask
from netdfl.scenario.model.schema import Scenario
from netdfl.training.base import NOTHING, Kept
from netdfl.training.classification import Classification, CrossEntropy, answers, outcome
from netdfl.training.data.augmentations import none as no_augmentation
from netdfl.training.data.examples import Examples, Samples, Tree, in_batches, in_memory, leaves, shape_of
from netdfl.training.data.finite import refuse_spoiled
from netdfl.training.data.own import Datasets
from netdfl.training.data.partitions import label_counts
from netdfl.training.data.sharing import share_out
from netdfl.training.drawing import seeded
from netdfl.training.tasks.recipe import made, one_form, recipe_of, refusal
from netdfl.training.trial import EXAMPLES, fit_ways

FEW_CLASSES, RARE = 20, 3
"""With more classes than this, and fewer training examples than `RARE` per class, targets are hardly classes."""
SETTLING = 1024
"""The most training examples from which a model's running statistics (of batch normalization) are recomputed."""


class TrainingProblem:
    """The training problem: data distributed over the clients, and a model from which all nodes start."""

    def __init__(self, scenario: Scenario, streams: Streams, num_clients: int) -> None:
        """Load the data and distribute them. Raises DatasetError, or InputError if they do not fit the scenario."""
        with seeded(streams.integer("data"), torch.device("cpu")):
            self._load(scenario, streams, num_clients)

    def _load(self, scenario: Scenario, streams: Streams, num_clients: int) -> None:
        spec: Any = scenario.task
        self.spec, self.streams, self.num_clients = spec, streams, num_clients
        self.split: Any = spec.split
        recipe = recipe_of(spec)
        self.data = recipe.data
        self.shared = one_form(recipe.data, self.split.test, streams)
        self.notes = list(self.shared.notes)
        """Remarks on the data, a sentence each."""
        try:
            self.parts, self.client_tests = self._share_out()
            self.model, self.metrics = made(recipe, self.shared, spec.settings, streams.integer("model"))
            refuse_spoiled(self.shared.spoiled, self._loss_of)
            self._check_batches()
            self.notes += [*self._not_used(), *self._odd_targets()]
        except ValueError as error:
            raise InputError(str(error)) from error
        if self.model.still and scenario.algorithm.traits.extrapolates:
            what = f"{scenario.algorithm.kind} moves a model beyond what was averaged, and running statistics with it"
            raise InputError(f"{what}: set buffers: local, or reset, for the model")
        self.start = self.model.flat()
        self.device = "cpu"
        """The device of this process's tasks, on which models are evaluated, too."""

    @property
    def shares_digest(self) -> str:
        """A digest of the clients' shares of the data, by the numbers and classes of their examples.

        The inputs are left out, as they may differ in rounding between machines.
        """
        found = blake2b(str(len(self.shared.train)).encode(), digest_size=6)
        labels = self.shared.labels
        for numbers in (*self.parts, *([] if labels is None else [labels])):
            found.update(np.ascontiguousarray(numbers, np.int64).tobytes() + b"end")
        return found.hexdigest()

    def _loss_of(self, examples: Samples) -> float:
        """Return the loss of the initial model on some examples."""
        return outcome(self.model, self.model.flat(), examples, len(examples)).loss

    def fit_ways(self, local: object) -> list[str]:
        """Turn off faster computations whose results, for the local solver `local`, differ from plain PyTorch's.

        Return notes about this for the user.
        """
        x, y = self.shared.train.take(torch.arange(min(EXAMPLES, len(self.shared.train))))
        return fit_ways(self.model, local, x, y, self.spec.batch_size, rows=self.spec.batching == "auto")

    def _check_batches(self) -> None:
        """Check that the model can be trained on a batch of size one, if one occurs. Raises ValueError."""
        size, drops = self.spec.batch_size, self.spec.drop_last
        for client, part in enumerate(self.parts):
            if size == 1 or len(part) == 1 or (len(part) % size == 1 and not drops):
                why = refusal(self.model, *self.shared.train.take(torch.from_numpy(part[-1:])))
                if why is None:
                    return
                what = f"client {client} has {len(part)} examples, so with batch_size {size} a minibatch has one"
                remedy = "a larger batch_size" if size == 1 else "drop_last: true" if len(part) > 1 else "fewer clients"
                raise ValueError(f"{what}, on which the model can't be trained ({why}): set {remedy}")

    def _not_used(self) -> Iterator[str]:
        """Yield a sentence for each setting that has no effect on this data."""
        size, most = self.spec.batch_size, max(map(len, self.parts), default=0)
        if size > most and size > type(self.spec).model_fields["batch_size"].get_default():
            yield f"task.batch_size {size} is more than any client's {most} examples: every minibatch is all of them"
        split, data = self.split, self.data
        bring_test = not isinstance(data, Datasets) or data.test is not None or data.client_tests is not None
        if bring_test and split.test != type(split).model_fields["test"].get_default():
            yield f"test: {split.test:g} is not used: the data bring a test set"
        if self.shared.parts is not None and split.partition.kind != "iid":
            yield f"partition {split.partition.kind} is not used: the data are given by client"

    def _odd_targets(self) -> Iterator[str]:
        """Yield a sentence if targets learned as classes are hardly classes (prices, say), or numbers might be some."""
        labels = self.shared.labels
        if labels is None:
            yield from self._whole_numbers()
        elif self.model.uses_cross_entropy:
            num, most = len(np.unique(labels)), int(labels.max())
            told = f"the {len(labels)} training targets have {num} different values, each of them a class"
            if num == 1:
                yield f"all {len(labels)} training targets are {most}: there is but one class to learn"
            elif num > FEW_CLASSES and RARE * num > len(labels):
                yield f"{told}: if they are numbers, set task.loss: mse"
            elif most > FEW_CLASSES * num:
                yield f"{told}, and the largest is {most}: number them from 0, as a model has an output for each"

    def _whole_numbers(self) -> Iterator[str]:
        """Yield a sentence if the targets are a few whole numbers in floating point, learned as numbers by default."""
        train = self.shared.train
        targets = train.y if isinstance(train, Samples) else None
        if getattr(self.spec, "loss", "") != "auto" or not isinstance(targets, Tensor):
            return
        if targets.numel() == len(targets):
            values = targets.unique()
            if 1 < len(values) <= FEW_CLASSES and bool((values == values.round()).all()) and bool((values >= 0).all()):
                told = f"the training targets are {len(values)} whole numbers of {targets.dtype}, learned as numbers"
                form = "integers" if targets.dim() == 1 else "integers of shape (N,)"
                other = ", or set task.loss: binary_cross_entropy" if values.tolist() == [0, 1] else ""
                yield f"{told}: if they are classes, give them as {form}{other}"

    def _share_out(self) -> tuple[list[NDArray[np.int64]], Sequence[Examples] | None]:
        """Return the indices of each client's training examples, and each client's own test set if there are any.

        Raises ValueError where the data do not fit the scenario.
        """
        data, num = self.shared, self.num_clients
        if data.parts is not None:
            if len(data.parts) != num:
                raise ValueError(f"the data are of {len(data.parts)} clients, and nodes is {num}: set nodes to that")
            parts = data.parts
        else:
            parts, notes = share_out(data, self.split.partition, num, self.streams)
            self.notes += notes
        tests = data.client_tests
        if tests is not None and len(tests) != num:
            raise ValueError(f"the data have {len(tests)} client_tests, and nodes is {num}: give one for each client")
        if self.split.client_test:
            if tests is not None:
                raise ValueError("the data bring each client's own test examples: leave client_test out")
            parts, tests = self._held_out(parts)
        return parts, tests

    def _held_out(self, parts: list[NDArray[np.int64]]) -> tuple[list[NDArray[np.int64]], list[Examples]]:
        kept, held = [], []
        for client, part in enumerate(parts):
            order = self.streams.rng("client_test", client).permutation(part)
            cut = round(self.split.client_test * len(part))
            if not 0 < cut < len(part):
                raise ValueError(f"client {client} has {len(part)} examples: too few to hold a test set out of")
            kept.append(np.sort(order[cut:]))
            held.append(self.shared.train.only(np.sort(order[:cut])))
        return kept, held

    # what the fleet asks for

    @property
    def dim(self) -> int:
        """Number of parameters, including the running statistics that are averaged."""
        return self.model.dim

    @property
    def judged_dim(self) -> int | None:
        """Length of a model vector for evaluation; None if only some nodes add module buffers to it.

        Clients have buffers of their own then, and a server has none.
        """
        own = self.model.policy == "local" and self.model.buffers.size > 0
        return None if own else self.dim

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input example."""
        return shape_of(self.shared.first()[0])

    def task(self, node: NodeId, device: str) -> Classification:
        """Return the client's task on its standardized part of the training set, on `device`."""
        self.move_to(device)
        augment = getattr(self.split, "augment", None)
        chosen = None if augment is None or augment.kind == no_augmentation.__name__ else augment
        return Classification(
            self.model,
            self.start.to(device),
            self.shared.train.only(self.parts[node]).to(device),
            node=node,
            streams=self.streams,
            batch_size=self.spec.batch_size,
            num_labels=self.shared.num_classes,
            augment=None if chosen is None else lambda batch, rng: chosen.build(batch, rng),
            drop_last=self.spec.drop_last,
        )

    def move_to(self, device: str) -> None:
        """Evaluate models on `device` from now on."""
        self.model.to(device)
        self.device = device

    def idle(self, device: str) -> IdleTask:
        """Return the server's task, on `device`."""
        self.move_to(device)
        return IdleTask(
            self.start.to(device), CrossEntropy(self.model, self.shape, self.shared.num_classes, self.streams)
        )

    @cached_property
    def test(self) -> Samples:
        """The standardized test set."""
        assert self.shared.test is not None
        with self._drawing("test"):
            return in_memory(self.shared.test)

    def _drawing(self, *key: Key) -> AbstractContextManager[object]:
        """Return a context in which a user's code draws the same random numbers in each evaluation."""
        return seeded(self.streams.integer("judging", *key), torch.device(self.device))

    def evaluate(self, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        """Return the loss and other metrics of the model `x` on the whole test set."""
        with self._drawing(), self._judging(x.to(self.device), kept, self.shared.train, alone=alone) as at:
            assert self.shared.test is not None
            if self.metrics is None:
                found = answers(self.model, at, self.test, self.spec.eval_batch)
                return {"test_accuracy": found.accuracy, "test_loss": found.loss}
            return self._judged(at, self.shared.test, "test")

    def evaluate_trained(self, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        """Return loss and other metrics of the model `x` on all clients' training examples, without augmentation."""
        with self._drawing("train"), self._judging(x.to(self.device), kept, self.shared.train, alone=alone) as at:
            if self.metrics is None:
                found = answers(self.model, at, in_memory(self.trained), self.spec.eval_batch)
                return {"train_accuracy": found.accuracy, "train_loss": found.loss}
            return self._judged(at, self.trained, "train")

    @property
    def trained(self) -> Examples:
        """The training examples of all clients together."""
        every, train = np.concatenate(self.parts), self.shared.train
        return train if len(every) == len(train) else train.only(np.sort(every))

    def evaluate_local(self, node: NodeId, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        """Return metrics on the whole test set, and metrics `personal_...` on the client's own distribution of data.

        The latter come from the client's own test set if there is one, else from the test set, weighted by the client's
        labels.
        """
        with self._drawing(node), self._judging(x.to(self.device), kept, self._examples_of(node), alone=alone) as at:
            return self._figures_of(node, at)

    def _figures_of(self, node: NodeId, at: Tensor) -> Figures:
        is_client = node < self.num_clients
        own = self.client_tests[node] if self.client_tests is not None and is_client else None
        personal = {} if own is None else self._judged(at, own, "personal")
        if self.metrics is not None:
            assert self.shared.test is not None
            return self._judged(at, self.shared.test, "test") | personal
        found = answers(self.model, at, self.test, self.spec.eval_batch)
        if own is None and is_client:
            share = found.accuracy_for(self.test.y, torch.from_numpy(self.counts[node]))
            personal = {} if share is None else {"personal_accuracy": share}
        return {"test_accuracy": found.accuracy} | personal

    def _judged(self, at: Tensor, examples: Examples, where: str) -> dict[str, float]:
        if self.metrics is None:
            found = answers(self.model, at, in_memory(examples), self.spec.eval_batch)
            return {f"{where}_accuracy": found.accuracy}
        judged = outcome(self.model, at, examples, self.spec.eval_batch)
        figures = {f"{where}_{name}": float(n) for name, n in self.metrics(judged.outputs, judged.targets).items()}
        return figures | {f"{where}_loss": judged.loss}

    def module(self, x: Tensor, node: NodeId | None = None, kept: Kept = NOTHING, *, alone: bool = False) -> nn.Module:
        """Return a new module with the parameters `x`, in evaluation mode: the model of `node`, or of all nodes."""
        with self._judging(x, kept, self._examples_of(node), alone=alone) as at:
            return self.model.made(at)

    @contextmanager
    def _judging(self, x: Tensor, kept: Kept, examples: Examples, *, alone: bool) -> Iterator[Tensor]:
        """Set the module buffers that belong to the model `x`; yield `x` with its running statistics.

        With `alone`, `x` is one node's model and has its buffers `kept`. An average has no buffers: the buffers `kept`
        of one node are recomputed by passes over training examples in training mode.
        """
        if not alone and (kept or self.model.keeps_buffers):
            kept = self.model.renewed(x, kept, self._batches(examples, x.device))
        with self.model.used_by(None, kept):
            yield self._settled(x, examples)

    def _examples_of(self, node: NodeId | None) -> Examples:
        """Return the training examples of a client; all examples for None or a server."""
        if node is None or node >= self.num_clients:
            return self.shared.train
        return self.shared.train.only(self.parts[node])

    def _settled(self, x: Tensor, examples: Examples) -> Tensor:
        """Return `x` with running statistics; if it lacks them, they are computed from training `examples`."""
        if not self.model.buffers.size or len(x) > self.model.num_trained:
            return x
        return self.model.settled(x, self._batches(examples, x.device))

    def _batches(self, examples: Examples, device: torch.device) -> Iterator[Tree]:
        """Yield inputs of training examples on `device`, from which module buffers are recomputed."""
        chosen = np.linspace(0, len(examples) - 1, min(SETTLING, len(examples))).astype(np.int64)
        batches = (inputs for inputs, _ in in_batches(examples.only(chosen).to(device), max(2, self.spec.batch_size)))
        return (inputs for inputs in batches if len(next(leaves(inputs))) > 1)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of samples of each label at each client, shape (clients, labels)."""
        assert self.shared.labels is not None
        return label_counts(self.shared.labels, self.parts, self.shared.num_classes)

    def partition(self) -> Json | None:
        """Return the label counts of each client; None if the targets are not classes."""
        if self.shared.labels is None:
            return None
        return {"classes": [str(c) for c in range(self.shared.num_classes)], "counts": self.counts.tolist()}
