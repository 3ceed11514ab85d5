"""A trial of two local steps on a few examples, by each way of computing, compared with plain PyTorch.

    autograd    the module on the flat vector: `netdfl.training.flat`
    formula     a perceptron's gradient by its formula: `netdfl.training.perceptron`
    rows        many nodes as one computation: `netdfl.training.stacked`

Plain PyTorch is a copy of the module with its own parameters, and `backward`. All ways take the solver's own steps
from the same start on the same minibatches. A formula or rows with another result are replaced by autograd on the
flat vector. Notes report this, and also where autograd has another result, or where plain PyTorch has a different one
each time. A model that can't be copied is not tried.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.classification import Classification
from netdfl.training.data.examples import Samples, Tree, form, leaves, mapped
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import applied
from netdfl.training.models.copying import copied
from netdfl.training.remembering import apart, fingerprint, known, must_be_apart, remember
from netdfl.training.sgd import LocalSgd, LocalSteps
from netdfl.training.stepping import CONSTANT

Way: TypeAlias = Literal["autograd", "formula", "rows"]
EXAMPLES = 8
"""The most examples in a trial of a model: two minibatches."""
LARGE = 5_000_000
"""The number of parameters above which a trial takes half as many examples.

A gradient of such a model takes a tenth of a second.
"""
NEAR = 1e-3
"""The tolerance between two ways of computing, as a share of the distance that plain PyTorch moves the model.

Rounding is far below it.
"""
_VIEW = View(0, 0, 1, (), (), 1.0, {}, {})


class ModelTrial(NamedTuple):
    """The inputs of a trial of a model: two local steps, compared with plain PyTorch.

    Attributes:
        model: the model on a flat vector.
        local: the algorithm's local solver.
        x: inputs of a few examples.
        y: their targets.
        batch_size: the number of examples in a minibatch.
        ways: the ways of computing to compare with plain PyTorch.
    """

    model: FlatModel
    local: object
    x: Tree
    y: Tree
    batch_size: int
    ways: tuple[Way, ...]


def fit_ways(model: FlatModel, local: object, x: Tree, y: Tree, batch_size: int, *, rows: bool) -> list[str]:
    """Exclude ways of computing `model` that differ from plain PyTorch on `x` and `y`; return notes for the user.

    `local` is the algorithm's local solver; `rows`: nodes may be computed together.
    """
    if model.dim > LARGE:
        x, y = (mapped(tree, lambda tensor: tensor[: EXAMPLES // 2]) for tree in (x, y))
    formula = model.perceptron is not None
    ways: tuple[Way, ...] = ("formula", "rows") if formula and rows else ("formula",) if formula else ("autograd",)
    trial = ModelTrial(model, local, x, y, batch_size, ways)
    key = _key(trial)
    wrong = known(key)
    if wrong is None:
        wrong = apart(partial(differing, trial)) if must_be_apart() else differing(trial)
        if wrong is None:  # it died, or took too long
            return model.notes
        remember(key, wrong)
    if "formula" in wrong:
        model.perceptron, model.sources = None, None
    if wrong:
        model.in_rows = False
    return [*model.notes, *(_NOTES[way] for way in wrong if way in _NOTES and not (way == "chance" and model.notes))]


_NOTES = {
    "formula": "the formula of perceptrons leads elsewhere with it than plain PyTorch: it is trained by autograd",
    "rows": "computing nodes together leads elsewhere than plain PyTorch: they are computed one by one",
    "autograd": "its local steps end elsewhere than in plain PyTorch: see whether its forward uses "
    "tensors that are neither its inputs, nor its parameters, nor buffers",
    "chance": "the same local steps end elsewhere each time, so no run repeats another: the model or its loss draws "
    "random numbers that no seed reaches, or goes by a clock; --check-determinism names the place",
}


def differing(trial: ModelTrial) -> list[str]:
    """Return the names of the ways of computing the trial's model whose result differs from plain PyTorch's.

    The only name is `chance` if plain PyTorch itself has a different result each time.
    """
    wrong: list[str]
    try:
        start, plain = trial.model.flat(), _ended(trial, _PlainModel)
        if not plain.isfinite().all():
            return []
        wrong = [way for way in trial.ways if not _leads_there(way, trial, plain, start)]
        if not wrong:
            return []
        if not _near(_ended(trial, _PlainModel), plain, start):
            return ["chance"]
    except Exception:
        return []  # where plain PyTorch can't, netdfl says so elsewhere
    if "autograd" not in trial.ways and not _leads_there("autograd", trial, plain, start):
        wrong.append("autograd")
    return wrong


def _leads_there(way: Way, trial: ModelTrial, plain: Tensor, start: Tensor) -> bool:
    try:
        ended = _in_rows(trial) if way == "rows" else _ended(trial, _By[way])
    except Exception:
        return False
    return ended is None or _near(ended, plain, start)


def _near(ended: Tensor, plain: Tensor, start: Tensor) -> bool:
    return float((ended - plain).norm()) <= NEAR * float((plain - start).norm())


class _PlainModel(FlatModel):
    """A model with gradients as in plain PyTorch: parameters in separate memory, and `backward`."""

    _wrote = False

    def slope(self, at: Tensor, x: Tree, y: Tree, out: Tensor) -> Tensor:
        first = 0
        for parameter in self.parameters:
            piece = at[first : first + parameter.numel()]
            parameter.data, parameter.grad = piece.to(parameter.dtype, copy=True).view(parameter.shape), None
            first += parameter.numel()
        begun = [parameter.data.clone() for parameter in self.parameters]
        loss = self.loss(applied(self.module.train(), x), y)
        loss.backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in self.parameters]
        self._wrote = self._keep_written(at, begun)
        out.zero_()[:first] = torch.cat([grad.reshape(-1).to(self.dtype) for grad in grads])
        return loss.detach()

    def written(self, at: Tensor) -> Tensor | None:
        """Return `at`, the point of the last gradient, if the forward pass wrote to it; else None."""
        return at if self._wrote else None

    def _keep_written(self, at: Tensor, begun: list[Tensor]) -> bool:
        """Copy to `at` the values that the forward pass wrote to parameters, as `Embedding(max_norm=...)` does.

        Returns whether the forward pass wrote anything. `begun` are the parameters before the pass.
        """
        first, wrote = 0, False
        for parameter, before in zip(self.parameters, begun, strict=True):
            if not torch.equal(parameter.data, before):
                at[first : first + parameter.numel()] = parameter.data.reshape(-1)
                wrote = True
            first += parameter.numel()
        return wrote


class _AutogradModel(FlatModel):
    """A model whose gradients are computed by autograd on the flat vector, even where a formula is known."""

    @property
    def stackable(self) -> bool:
        return False


_By: dict[Way, type[FlatModel]] = {"autograd": _AutogradModel, "formula": FlatModel}


def _ended(trial: ModelTrial, kind: type[FlatModel]) -> Tensor:
    """Return the vector after two local steps of a model of this class."""
    ended, _ = _steps(trial, kind)()
    return ended


def _in_rows(trial: ModelTrial) -> Tensor | None:
    """Return the vector after two local steps, computed with a second node in one matrix; None if impossible."""
    from netdfl.training.stacked import likeness, run_stacked
    from netdfl.training.stacked_model import StackedModel

    asked = [_steps(trial, FlatModel)]
    asked.append(replace(asked[0], data=asked[0].data.task.data(0)))  # type: ignore[attr-defined]
    task = asked[0].data.task  # type: ignore[attr-defined]
    model = StackedModel(task.model)
    if likeness(asked[0]) is None or not model.agrees(task.initial(), *task.first()):
        return None
    found = run_stacked(asked, model)[1]
    if isinstance(found, Exception):
        raise found
    return found[0]


def _steps(trial: ModelTrial, kind: type[FlatModel]) -> LocalSteps:
    """Return the solver's first two local steps on a copy of the model."""
    given = trial.model
    module = copied(given.module)
    for parameter, ours in zip(module.parameters(), given.module.parameters(), strict=True):
        parameter.data = ours.data.clone()
    model = kind(module, given._loss, buffers=given.buffers.names, policy=given.policy)
    num = len(next(leaves(trial.y)))
    size = max(1, min(trial.batch_size, -(-num // 2)))
    examples = Samples(trial.x, trial.y)
    task = Classification(model, given.flat(), examples, node=0, streams=Streams(0), batch_size=size)
    return _sgd(trial.local).steps_from(task.initial(), 1.0, task.data(0), _VIEW)


def _sgd(local: object) -> LocalSgd:
    """Return the SGD settings of a solver, for two trial steps; torch optimizers are replaced by plain SGD."""
    found = local if isinstance(local, LocalSgd) else getattr(local, "sgd", None)
    if not isinstance(found, LocalSgd):
        return LocalSgd(lr=0.1, steps=2)
    once: dict[str, Any] = {"epochs": None, "steps": 2, "lr": 0.1, "lr_decay": 1.0, "schedule": CONSTANT}
    if type(found).solve is LocalSgd.solve and type(found).steps_from is LocalSgd.steps_from:
        return replace(found, **once)
    return LocalSgd(**{field.name: getattr(found, field.name) for field in fields(LocalSgd)} | once)


def _key(trial: ModelTrial) -> str:
    sgd = _sgd(trial.local)
    default = {field.name: field.default for field in fields(LocalSgd)}
    chosen = sorted(name for name, value in default.items() if getattr(sgd, name) != value)
    said = (type(sgd).__qualname__, chosen, form(trial.x), form(trial.y), trial.batch_size, trial.ways)
    return fingerprint(trial.model.module, (trial.model._loss, type(sgd)), repr(said))
