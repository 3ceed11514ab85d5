"""A client that says how many examples it has, so that the server can weigh its report by them (FedAvg's n_k)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import LocalData, LocalSolver, Received, S, Update
from netdfl.training.step_requests import Solving, StepRequests, requested

SAMPLES = "samples"


@dataclass(frozen=True)
class Counted(Solving, Generic[S]):
    """Any local solver; n_k, one number, goes along with its model."""

    inner: LocalSolver[S]

    def init(self, x: Tensor, view: View) -> S:
        """As the wrapped solver."""
        return self.inner.init(x, view)

    def solve(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[S, Update]]:
        """The wrapped solver's steps."""
        state, update = yield from requested(self.inner, state, y, received, weight, data, view)
        count = y.new_tensor([float(data.num_samples)])
        return state, update._replace(extras={**update.extras, SAMPLES: count})

    def after_mix(self, state: S, before: Tensor, after: Tensor, received: Received, view: View) -> S:
        """As the wrapped solver."""
        return self.inner.after_mix(state, before, after, received, view)
