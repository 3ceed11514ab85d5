"""The local steps of many nodes as one computation on matrices, one row per node.

Each row has its own data, learning rate, push-sum weight, momentum, correction and ascent. A node leaves the
computation after its last step. Rows are ordered by number of steps, the largest first, so the remaining nodes are the
first rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from netdfl.core.errors import NotFiniteError
from netdfl.training.base import Gradient, LocalData, StepResult
from netdfl.training.classification import DrawnBatches, RoundPass
from netdfl.training.sgd import LocalSteps
from netdfl.training.stacked_model import StackedModel
from netdfl.training.wrapped import Rows, WrappedData


def split(data: LocalData) -> tuple[RoundPass, Rows | None] | None:
    """Return a round's (minibatches, gradient wrapper or None); None if its steps can't be rows of a matrix."""
    if type(data) is RoundPass:
        return data, None
    if type(data) is WrappedData and isinstance(data.wrap, Rows) and type(data.data) is RoundPass:
        return data.data, data.wrap
    return None


def works_on_rows(steps: LocalSteps) -> bool:
    """Return whether all code of the steps also works on a matrix, each row of which is one node's model.

    Netdfl's own code does, and classes with `rows = True`. A subclass does not inherit this attribute, because its own
    method may take one norm of all rows.
    """
    return type(steps) is LocalSteps and vars(type(steps.sgd)).get("rows") is True


def likeness(steps: LocalSteps) -> Hashable | None:
    """Return a key that is equal for local steps that can be computed together, each node being a row of a matrix.

    None for steps that can't be computed with others.
    """
    found = split(steps.data)
    if found is None or not works_on_rows(steps):
        return None
    data, wrap = found
    if not data.num_steps(epochs=steps.sgd.epochs, steps=steps.sgd.steps):
        return None
    kind = None if wrap is None else (type(wrap), wrap.numbers)
    given = (steps.velocity is None, steps.correction is None, steps.scale)
    return (id(data.task.model), data.task.batch_size, steps.y.device, steps.sgd, kind, *given)


def run_stacked(asked: Sequence[LocalSteps], model: StackedModel) -> list[StepResult | NotFiniteError]:
    """Compute the local steps `asked`, one request for each node, together; return each one's result or error.

    All must have an equal `likeness`. Results are the same as if computed one by one, up to rounding.
    """
    sgd = asked[0].sgd
    numbers = [_split(each)[0].num_steps(epochs=sgd.epochs, steps=sgd.steps) for each in asked]
    order = sorted(range(len(asked)), key=lambda place: -numbers[place])
    run = _StackedSteps([asked[place] for place in order], model)
    for step in range(numbers[order[0]]):
        run.step(step)
    found = dict(zip(order, run.finish(), strict=True))
    return [found[place] for place in range(len(asked))]


def _split(steps: LocalSteps) -> tuple[RoundPass, Rows | None]:
    found = split(steps.data)
    assert found is not None, "steps that can't be stacked were"
    return found


class _StackedSteps:
    """The computation of the local steps of many nodes on matrices, one row per node, while it is under way."""

    def __init__(self, asked: Sequence[LocalSteps], model: StackedModel) -> None:
        self.asked, self.model, self.sgd = asked, model, asked[0].sgd
        parts = [_split(each) for each in asked]
        self.rounds = [data for data, _ in parts]
        self.wraps = [wrap for _, wrap in parts if wrap is not None]
        self.y = torch.stack([each.y for each in asked])
        drawn = [each.drawn(epochs=self.sgd.epochs, steps=self.sgd.steps) for each in self.rounds]
        self.batches = StackedBatches(drawn, self.y.dtype)
        self.slope = torch.empty_like(self.y)
        given = _stack([each.velocity for each in asked])
        self.velocity = torch.zeros_like(self.y) if given is None and self.sgd.momentum else given
        self.correction = _stack([each.correction for each in asked])
        self.descent_lr = self._column([-each.lr for each in asked])
        weighted = any(each.weight != 1.0 for each in asked)
        self.weight = self._column([each.weight for each in asked]) if weighted else None
        self.wrap = self.wraps[0].stacked(self.wraps) if self.wraps else None
        self.losses = self.y.new_empty(len(self.batches.active), len(asked))

    def _column(self, numbers: list[float]) -> Tensor:
        return self.y.new_tensor(numbers).unsqueeze(1)

    def step(self, step: int) -> None:
        """Compute step number `step` for all nodes whose local rounds have so many steps."""
        rows = self.batches.active[step]
        y = self.y[:rows]
        gradient = self._gradient(step, rows)
        if self.wrap is not None:
            gradient = self.wrap.first(rows)(gradient)
        correction = None if self.correction is None else self.correction[:rows]
        z = y if self.weight is None else y / self.weight[:rows]
        move = self.sgd.descent(gradient, z, self.asked[0].scale, correction)
        if self.sgd.momentum:
            assert self.velocity is not None
            velocity = self.velocity[:rows].mul_(self.sgd.momentum).add_(move)
            move = move.add(velocity, alpha=self.sgd.momentum) if self.sgd.nesterov else velocity
        y.addcmul_(move, self.descent_lr[:rows])

    def _gradient(self, step: int, rows: int) -> Gradient:
        x, labels, share = self.batches.at(step)
        first = True

        def gradient(at: Tensor) -> Tensor:
            nonlocal first
            losses = self.model.slope(at, x, labels, share, self.slope[:rows])
            if first:
                self.losses[step, :rows] = losses
                first = False
            return self.slope[:rows]

        return gradient

    def finish(self) -> list[StepResult | NotFiniteError]:
        """Return each node's vector and number of steps; store its mean loss, and its gradient wrapper's changes."""
        if self.wrap is not None:
            self.wrap.settle(self.wraps)
        return [self._finish(row) for row in range(len(self.asked))]

    def _finish(self, row: int) -> StepResult | NotFiniteError:
        num, given = self.batches.num_steps[row], self.asked[row].velocity
        if given is not None and self.velocity is not None:
            given.copy_(self.velocity[row])
        try:
            self.rounds[row].finish(self.losses[:num, row])
        except NotFiniteError as error:
            return error
        return self.y[row].clone(), num


def _stack(vectors: Sequence[Tensor | None]) -> Tensor | None:
    found = [vector for vector in vectors if vector is not None]
    return torch.stack(found) if found else None


class StackedBatches:
    """The minibatches of n nodes with the same batch size; nodes are ordered by number of steps, the largest first."""

    def __init__(self, drawn: Sequence[DrawnBatches], dtype: torch.dtype) -> None:
        """Join all nodes' examples; `drawn` has the node with the most steps first, `dtype` is the model's."""
        self.num_steps = [len(each.sizes) for each in drawn]
        self.x, self.y = torch.cat([each.x for each in drawn]), torch.cat([each.y for each in drawn])
        starts = np.cumsum([0, *(len(each.y) for each in drawn)])
        shape = (self.num_steps[0], len(drawn), drawn[0].places.shape[1])
        index, counts = np.zeros(shape, np.int64), np.zeros(shape[:2], np.int64)
        for row, each in enumerate(drawn):
            index[: self.num_steps[row], row] = each.places + starts[row]
            counts[: self.num_steps[row], row] = each.sizes
        self.active = (counts > 0).sum(1).tolist()
        self._widths = counts.max(1).tolist()
        self._index = torch.from_numpy(index).to(self.x.device)
        taken = np.arange(shape[2]) < counts[..., None]
        self._share = torch.from_numpy(taken / np.maximum(counts, 1)[..., None]).to(self.x.device, dtype)

    def at(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (a, B, ...), labels (a, B), and weights of examples (a, B) of the nodes active in `step`.

        They are the first a = `active[step]`; B is the largest minibatch among them.
        """
        rows, width = self.active[step], self._widths[step]
        index = self._index[step, :rows, :width].reshape(-1)
        x, y = self.x.index_select(0, index), self.y.index_select(0, index)
        return x.unflatten(0, (rows, width)), y.view(rows, width), self._share[step, :rows, :width]
