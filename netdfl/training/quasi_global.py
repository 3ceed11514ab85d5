"""Quasi-global momentum: local momentum that starts from how the node's vector moved, mixing included.

With m^ kept between rounds, x the round's start, x+ the vector after mixing, K steps:

    v_0 = m^;  v <- beta v + g;  y <- y - lr v          (the local steps)
    m^ <- mu m^ + (1 - mu) (x - x+) / (lr K)            (after mixing)

Nothing is sent for it. Source: QG-DSGDm, Lin et al. 2021, where K = 1 and mu = beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import LocalData, Received, Update
from netdfl.training.sgd import LocalSgd
from netdfl.training.step_requests import Solving, StepRequests


class QuasiGlobalState(NamedTuple):
    """m^, shape (d,), and how many steps the last local round took."""

    momentum: Tensor
    steps: int


@dataclass(frozen=True)
class QuasiGlobal(Solving):
    """Local SGD whose momentum begins at m^ every round; `mu` is how slowly m^ follows."""

    sgd: LocalSgd
    mu: float

    def init(self, x: Tensor, view: View) -> QuasiGlobalState:
        """No momentum yet."""
        return QuasiGlobalState(x.new_zeros(x.shape), 0)

    def solve(
        self, state: QuasiGlobalState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[QuasiGlobalState, Update]]:
        """The local steps, with velocity m^ at first."""
        x, steps = yield self.sgd.steps_from(y, weight, data, view, velocity=state.momentum.clone())
        return state._replace(steps=steps), Update(y, x)

    def after_mix(
        self, state: QuasiGlobalState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> QuasiGlobalState:
        """Let m^ follow what the round did to the vector."""
        if not state.steps:
            return state
        moved = (before - after) / (self.sgd.rate(view) * state.steps)
        return state._replace(momentum=self.mu * state.momentum + (1.0 - self.mu) * moved)
