"""Distillation of a trajectory of models into synthetic examples: training on them leads from one model to a later one.

With w^0 .. w^R the models of R rounds, X random at first, Y uniform over the labels, a the rate:

    every iteration: draw r; w^ = w^r; `steps` times w^ <- w^ - a grad F(w^; X, Y)
                     L = |w^ - w*|^2 / |w^r - w*|^2        (raw: L = |w^ - w*|^2)
                     X <- X - input_lr dL/dX,  a <- a - rate_lr dL/da,  Y likewise where labels are soft

w* is w^(r + gap), or the mean of some models drawn from w^(r + 1) to w^(r + gap). The published learning rates are for
the normalized loss. With DSA, every step uses X after a new random change (`netdfl.training.siamese`), and gradients
reach X through this change. Sources: FedSynSAM Alg. 1; DynaFed; Cazenavette et al. 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from netdfl.core.errors import TrainingError
from netdfl.core.types import View
from netdfl.training.base import Objective
from netdfl.training.sgd import TINY
from netdfl.training.siamese import Transformation, dsa


class SyntheticExamples(NamedTuple):
    """Synthetic inputs, shape (N, ...), and their labels, shape (N,), or probabilities, shape (N, num_labels)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, kw_only=True)
class Distiller:
    """The distillation of a model trajectory into synthetic examples.

    Attributes:
        per_class: the number of synthetic examples of each label.
        iterations: the number of iterations.
        steps: the number of training steps on the synthetic examples in an iteration.
        gap: the largest distance in rounds from a model to the later one that its training should reach.
        optimizer: the optimizer of the inputs and of the rate.
        input_lr: the optimizer's learning rate for the inputs.
        rate: the initial learning rate of the training steps, which is learned.
        rate_lr: the optimizer's learning rate for that rate.
        label_lr: the learning rate of soft labels, which are the softmax of logits; None: labels are fixed.
        label_scale: the initial logit of the true label.
        averaged: whether targets are means of at least two models.
        loss: the kind of loss: divided by the squared distance of the two models, or `raw`.
        augment: the transformations of DSA.
    """

    per_class: int
    iterations: int
    steps: int
    gap: int
    optimizer: Literal["sgd", "adam"]
    input_lr: float
    rate: float
    rate_lr: float
    label_lr: float | None = None
    label_scale: float = 1.0
    averaged: bool = False
    loss: Literal["normalised", "raw"] = "normalised"
    augment: tuple[Transformation, ...] = ()

    def distil(self, trajectory: Sequence[Tensor], objective: Objective, view: View) -> SyntheticExamples:
        """Return synthetic examples: training on them leads from a model of `trajectory`, shape (d,), to a later one.

        Raises TrainingError for a non-finite loss: the examples would be worthless.
        """
        rng = objective.streams.rng("distil", view.round)
        changes = objective.streams.rng("augment", "distil", view.round)
        x, y, rate = self._first(trajectory[0], objective, rng)
        chosen = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[self.optimizer]
        groups = [{"params": [x], "lr": self.input_lr}, {"params": [rate], "lr": self.rate_lr}]
        if self.label_lr is not None:
            groups.append({"params": [y], "lr": self.label_lr})
        optimizer: torch.optim.Optimizer = chosen(groups)
        for iteration in range(self.iterations):
            start, target = self._segment(trajectory, rng)
            with objective.drawing("distil", view.round, iteration):
                loss = self._mismatch(start, target, objective, self._examples(x, y), rate, changes)
            if not bool(torch.isfinite(loss)):
                raise TrainingError(
                    f"the distillation's loss is {loss.item()} in iteration "
                    f"{iteration}; expected a finite one: lower input_lr, or use the normalised loss"
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return SyntheticExamples(*(part.detach() for part in self._examples(x, y)))

    def _first(self, like: Tensor, objective: Objective, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.arange(objective.num_labels, device=like.device).repeat_interleave(self.per_class)
        noise = torch.from_numpy(rng.standard_normal((len(labels), *objective.input_shape)))
        rate = torch.tensor(self.rate, dtype=like.dtype, device=like.device)
        if self.label_lr is not None:
            logits = torch.nn.functional.one_hot(labels, objective.num_labels).to(like) * self.label_scale
            labels = logits.requires_grad_()
        return noise.to(like).requires_grad_(), labels, rate.requires_grad_()

    def _examples(self, x: Tensor, y: Tensor) -> SyntheticExamples:
        return SyntheticExamples(x, y if self.label_lr is None else y.softmax(1))

    def _segment(self, trajectory: Sequence[Tensor], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return a model of the trajectory, and a later model that training from it should reach."""
        r = int(rng.integers(len(trajectory) - self.gap))
        if not self.averaged:
            return trajectory[r], trajectory[r + self.gap]
        count = int(rng.integers(2, max(2, self.gap) + 1))
        chosen = rng.integers(r + 1, r + self.gap + 1, size=count)
        return trajectory[r], torch.stack([trajectory[k] for k in chosen]).mean(0)

    def _mismatch(
        self,
        start: Tensor,
        target: Tensor,
        objective: Objective,
        examples: SyntheticExamples,
        rate: Tensor,
        changes: np.random.Generator,
    ) -> Tensor:
        at = start.detach().requires_grad_()
        for _ in range(self.steps):
            seen = dsa(examples.x, changes, transformations=self.augment)
            (slope,) = torch.autograd.grad(objective.loss(at, seen, examples.y), at, create_graph=True)
            at = at - rate * slope
        missed = (at - target).square().sum()
        return missed if self.loss == "raw" else missed / ((start - target).square().sum() + TINY)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The training of a model on synthetic examples: `steps` of Adam, with DSA augmentation if configured."""

    steps: int
    lr: float
    augment: tuple[Transformation, ...] = ()

    def tune(self, x: Tensor, objective: Objective, examples: SyntheticExamples, view: View) -> Tensor:
        """Return a new vector, shape (d,), trained from `x` by a new Adam optimizer."""
        changes = objective.streams.rng("augment", "tune", view.round)
        at = x.clone().requires_grad_()
        optimizer = torch.optim.Adam([at], lr=self.lr)
        for step in range(self.steps):
            optimizer.zero_grad()
            seen = dsa(examples.x, changes, transformations=self.augment)
            with objective.drawing("tune", view.round, step):
                objective.loss(at, seen, examples.y).backward()
            optimizer.step()
        return at.detach()
