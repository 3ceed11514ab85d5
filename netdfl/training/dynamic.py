"""FedDyn's local objective: every client is drawn to the server's model, and pushed by where it drifted before.

    y <- y - lr (g + lambda (y - w) + lambda h_i);   h_i+ = h_i + (y_K - w)

The pull is weight decay of lambda and a constant, lambda (h_i - w), so any local SGD can do it. -lambda
h_i follows the client's gradient at the optimum of the fleet. Where reports are compressed, y_K in h_i is
what the server reads, so that both ends count the same. The server's side is `netdfl.mixing.dynamic`.
Source: Acar et al. 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import LocalData, Received, Update
from netdfl.training.sgd import LocalSgd
from netdfl.training.step_requests import Solving, StepRequests


class DynamicState(NamedTuple):
    """h_i, shape (d,): the sum of the client's moves."""

    drift: Tensor


@dataclass(frozen=True)
class Dynamic(Solving):
    """FedDyn's client; `penalty` is lambda."""

    sgd: LocalSgd
    penalty: float

    def init(self, x: Tensor, view: View) -> DynamicState:
        """h_i = 0."""
        return DynamicState(x.new_zeros(x.shape))

    def solve(
        self, state: DynamicState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[DynamicState, Update]]:
        """The regularised steps."""
        pulled = replace(self.sgd, weight_decay=self.sgd.weight_decay + self.penalty)
        x, _ = yield pulled.steps_from(y, weight, data, view, correction=self.penalty * (state.drift - y))
        return state, Update(y, x)

    def after_mix(
        self, state: DynamicState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> DynamicState:
        """Add to h_i where the steps led, as the server has read it."""
        return DynamicState(state.drift + ((after if received.read is None else received.read) - before))
