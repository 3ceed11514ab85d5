"""FedSynSAM's local solver: SAM whose ascent combines the node's gradient and one on synthetic examples.

    g^ = beta g_i(y; xi) + (1 - beta) g_syn(y; zeta);   y~ = y + rho g^ / |g^|;   y <- y - lr g_i(y~; xi)

xi is the step's minibatch, zeta one of the synthetic examples, which stand for the whole fleet's data. They come with
the server's model once (`netdfl.mixing.synthetic`) and are kept; before that it is SAM. Source: FedSynSAM Alg. 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import (
    Gradient,
    LocalData,
    MixingIndependent,
    Objective,
    Received,
    StepRequests,
    StepSolver,
    Update,
)
from netdfl.training.sgd import LocalSgd, along
from netdfl.training.wrapped import WrappedData

INPUTS, LABELS, HOLDS = "synthetic.x", "synthetic.y", "holds"


class GuidedState(NamedTuple):
    """The synthetic examples, under the names `INPUTS` and `LABELS`; empty before they arrive."""

    synthetic: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class FedSynSamSolver(StepSolver, MixingIndependent):
    """FedSynSAM's local solver, with `batch` synthetic examples per step. It reports whether it has them."""

    sgd: LocalSgd
    rho: float
    beta: float
    batch: int

    def init(self, x: Tensor, view: View) -> GuidedState:
        """Return a state without synthetic examples."""
        return GuidedState({})

    def solve(
        self, state: GuidedState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[GuidedState, Update]]:
        """Run the steps on combined gradients; report by one number whether the synthetic examples are here."""
        came = {name: received.extras[name] for name in (INPUTS, LABELS) if name in received.extras}
        synthetic = came or state.synthetic
        guide = _gradients(synthetic, data.objective, self.batch, view) if synthetic else None
        guided = WrappedData(data, self._ascent(guide)) if self.rho else data
        x, _ = yield self.sgd.steps_from(y, weight, guided, view)
        return GuidedState(synthetic), Update(y, x, {HOLDS: y.new_tensor([float(bool(synthetic))])})

    def _ascent(self, guide: Gradient | None) -> Callable[[Gradient], Gradient]:
        def wrap(gradient: Gradient) -> Gradient:
            def perturbed(at: Tensor) -> Tensor:
                direction = gradient(at)
                if guide is not None and self.beta < 1:
                    direction = self.beta * direction + (1.0 - self.beta) * guide(at)
                return gradient(along(at, direction, self.rho))

            return perturbed

        return wrap


def _gradients(synthetic: Mapping[str, Tensor], objective: Objective, batch: int, view: View) -> Gradient:
    """Return the gradient function on synthetic examples, which uses another minibatch at every call."""
    x, y = synthetic[INPUTS], synthetic[LABELS]
    rng = objective.streams.rng("synthetic", view.node, view.round)
    calls = count()

    def gradient(at: Tensor) -> Tensor:
        chosen = torch.from_numpy(rng.permutation(len(x))[:batch]).to(x.device)
        leaf = at.detach().requires_grad_()
        with objective.drawing("synthetic", view.node, view.round, next(calls)):
            (slope,) = torch.autograd.grad(objective.loss(leaf, x[chosen], y[chosen]), leaf)
        return slope

    return gradient
