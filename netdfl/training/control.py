"""Local steps corrected by the server's knowledge of the whole fleet: SCAFFOLD, FedCM and FedDyn.

    SCAFFOLD   y <- y - lr (g - c_i + c);   c_i+ = c_i - c + (w - y_K) / (K lr)
    FedCM      y <- y - lr (alpha g + (1 - alpha) m)
    FedDyn     y <- y - lr (g + lambda (y - w) + lambda h_i);   h_i+ = h_i + (y_K - w)

w is the server's model, y_K the client's after K steps at rate lr, c_i and h_i are vectors that the client keeps, c and
m vectors that the server sends with its model (`netdfl.mixing.control`). g is SAM's gradient where the wrapped SGD has
a radius: FedGAMMA and MoFedSAM. Where the change of c_i is compressed, both ends add the transmitted part, so that the
server's c stays the mean of all c_i. FedDyn's pull is weight decay of lambda and a constant, lambda (h_i - w), so any
local SGD can do it: every client is drawn to the server's model, and pushed by its earlier drift. -lambda h_i
approaches the client's gradient at the fleet's optimum. Where reports are compressed, y_K in h_i is the vector that the
server reads, so that both ends add the same; the server's side is `netdfl.mixing.dynamic`. Sources: Karimireddy et al.
2020, option II; MoFedSAM; Acar et al. 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import LocalData, Received, StepRequests, StepSolver, Update
from netdfl.training.sgd import LocalSgd, Memoryless, NoState, over_path

CONTROL, MOMENTUM, PATH = "control", "momentum", "path"


class ControlState(NamedTuple):
    """The client's own control variate c_i, shape (d,)."""

    control: Tensor


@dataclass(frozen=True)
class ScaffoldSolver(StepSolver):
    """SCAFFOLD's local solver, which sends c_i+ - c_i along with its model."""

    sgd: LocalSgd

    def init(self, x: Tensor, view: View) -> ControlState:
        """Return a zero control variate c_i."""
        return ControlState(x.new_zeros(x.shape))

    def solve(
        self, state: ControlState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[ControlState, Update]]:
        """Run SCAFFOLD's corrected local steps, and compute the change of the control variate c_i from them."""
        common = received.extras[CONTROL]
        x, steps = yield self.sgd.steps_from(y, weight, data, view, correction=common - state.control)
        slope = over_path(y - x, steps * self.sgd.rate(view))
        if slope is None:
            return state, Update(y, x, {CONTROL: torch.zeros_like(y)})
        change = slope - common
        return ControlState(state.control + change), Update(y, x, {CONTROL: change})

    def after_mix(
        self, state: ControlState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> ControlState:
        """Subtract from the control variate c_i the part of its change that compression left out of the message."""
        unsaid = received.unsaid.get(CONTROL)
        return state if unsaid is None else ControlState(state.control - unsaid)


@dataclass(frozen=True)
class FedCmSolver(StepSolver, Memoryless):
    """FedCM's local solver: each step is `alpha` times its own gradient plus (1 - `alpha`) times the fleet's momentum.

    The client sends the number K lr along with its model, for K steps at rate lr. By it the server converts the change
    of the client's model to a gradient.
    """

    sgd: LocalSgd
    alpha: float

    def solve(
        self, state: NoState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[NoState, Update]]:
        """Run local steps along a weighted sum of the minibatch gradient and the fleet's momentum."""
        momentum = received.extras[MOMENTUM]
        rest = (1.0 - self.alpha) * momentum
        x, steps = yield self.sgd.steps_from(y, weight, data, view, scale=self.alpha, correction=rest)
        return state, Update(y, x, {PATH: y.new_tensor([steps * self.sgd.rate(view)])})


class DynamicState(NamedTuple):
    """FedDyn's vector h_i, shape (d,): the sum of the changes that the client's local rounds made to its model."""

    drift: Tensor


@dataclass(frozen=True)
class FedDynSolver(StepSolver):
    """FedDyn's local solver; `penalty` is the paper's lambda."""

    sgd: LocalSgd
    penalty: float

    def init(self, x: Tensor, view: View) -> DynamicState:
        """Return the state in which h_i, the sum of the client's model changes, is 0."""
        return DynamicState(x.new_zeros(x.shape))

    def solve(
        self, state: DynamicState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[DynamicState, Update]]:
        """Run local steps with FedDyn's penalty terms."""
        pulled = replace(self.sgd, weight_decay=self.sgd.weight_decay + self.penalty)
        x, _ = yield pulled.steps_from(y, weight, data, view, correction=self.penalty * (state.drift - y))
        return state, Update(y, x)

    def after_mix(
        self, state: DynamicState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> DynamicState:
        """Add this round's change of the model, as the server decoded it, to the sum h_i."""
        return DynamicState(state.drift + ((after if received.read is None else received.read) - before))
