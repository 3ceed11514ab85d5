"""FedSynSAM's local solver: SAM whose ascent combines the node's gradient and one on synthetic examples.

    g^ = beta g_i(y; xi) + (1 - beta) g_syn(y; zeta);   y~ = y + rho g^ / |g^|;   y <- y - lr g_i(y~; xi)

xi is the step's minibatch, zeta one of the synthetic examples, which stand for the whole fleet's data. The server sends
them once, with its model (`netdfl.mixing.synthetic`), and nodes keep them; before that, the steps are SAM's. Source:
FedSynSAM Alg. 1. In a second reading the descent's gradient is combined too: y <- y - lr (beta g_i(y~; xi) + (1 - beta)
g_syn(y~; zeta)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

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
    """The synthetic examples, under the names `INPUTS` and `LABELS`; empty before the server has sent them."""

    synthetic: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class FedSynSamSolver(StepSolver, MixingIndependent):
    """FedSynSAM's local solver, with `batch` synthetic examples per step. Its update says whether the node has them.

    `blend` names the gradients that are combined with the synthetic one: the ascent's, or the ascent's and the
    descent's.
    """

    sgd: LocalSgd
    rho: float
    beta: float
    batch: int
    blend: Literal["ascent", "both"] = "ascent"

    def init(self, x: Tensor, view: View) -> GuidedState:
        """Return a state without synthetic examples."""
        return GuidedState({})

    def solve(
        self, state: GuidedState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[GuidedState, Update]]:
        """Run the steps on combined gradients; send a number that says whether this node has the synthetic examples."""
        came = {name: received.extras[name] for name in (INPUTS, LABELS) if name in received.extras}
        synthetic = came or state.synthetic
        guides = _gradients(synthetic, data.objective, self.batch, view) if synthetic and self.beta < 1 else None
        guided = WrappedData(data, self._steps(guides)) if self.rho or self.blend == "both" else data
        x, _ = yield self.sgd.steps_from(y, weight, guided, view)
        return GuidedState(synthetic), Update(y, x, {HOLDS: y.new_tensor([float(bool(synthetic))])})

    def _steps(self, guides: Iterator[Gradient] | None) -> Callable[[Gradient], Gradient]:
        """Return a function that adds SAM's ascent to the gradient of a local step.

        Each step combines its gradient with the next one of `guides`, gradients on synthetic examples; if `guides` is
        None, the step is plain SAM's.
        """

        def wrap(gradient: Gradient) -> Gradient:
            def perturbed(at: Tensor) -> Tensor:
                if guides is None:
                    return gradient(along(at, gradient(at), self.rho))
                blended = self._blended(gradient, next(guides))
                top = along(at, blended(at), self.rho) if self.rho else at
                return blended(top) if self.blend == "both" else gradient(top)

            return perturbed

        return wrap

    def _blended(self, gradient: Gradient, guide: Gradient) -> Gradient:
        return lambda at: self.beta * gradient(at) + (1.0 - self.beta) * guide(at)


def _gradients(synthetic: Mapping[str, Tensor], objective: Objective, batch: int, view: View) -> Iterator[Gradient]:
    """Yield, for each step, a gradient function on a new minibatch of the synthetic examples."""
    x, y = synthetic[INPUTS], synthetic[LABELS]
    rng = objective.streams.rng("synthetic", view.node, view.round)

    def on(chosen: Tensor, step: int) -> Gradient:
        def gradient(at: Tensor) -> Tensor:
            leaf = at.detach().requires_grad_()
            with objective.drawing("synthetic", view.node, view.round, step):
                (slope,) = torch.autograd.grad(objective.loss(leaf, x[chosen], y[chosen]), leaf)
            return slope

        return gradient

    for step in count():
        yield on(torch.from_numpy(rng.permutation(len(x))[:batch]).to(x.device), step)
