"""FedLESAM's perturbation: uphill is from the server's model back to the one that the client knew before.

    y~ = y + rho (w_old - w) / |w_old - w|;   the gradient of every step is taken at y~

w is the server's model of this round, w_old the one that the client received when it last took part,
so the perturbation is constant over a round and costs no second gradient. A client that takes part for
the first time has none. Source: FedLESAM (Fan et al. 2024); its published code divides by other norms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import Gradient, LocalData, LocalSolver, Received, S, Update
from netdfl.training.sgd import along
from netdfl.training.step_requests import Solving, StepRequests, requested
from netdfl.training.wrapped import Rows, Wrapped


class LesamState(NamedTuple, Generic[S]):
    """The wrapped solver's state, and the server's model of the client's last active round, shape (d,)."""

    inner: S
    previous: Tensor | None


@dataclass(frozen=True, eq=False)
class Shifted(Rows):
    """Takes gradients a constant `shift` away, shape (d,) or (n, d). A `Wrap`."""

    shift: Tensor

    def __call__(self, gradient: Gradient) -> Gradient:
        """The shifted gradient."""
        return lambda at: gradient(at + self.shift)


@dataclass(frozen=True)
class Lesam(Solving):
    """Any local solver with its gradients taken `rho` along the way that the server's model came."""

    inner: LocalSolver
    rho: float

    def init(self, x: Tensor, view: View) -> LesamState:
        """No round before."""
        return LesamState(self.inner.init(x, view), None)

    def solve(
        self, state: LesamState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[LesamState, Update]]:
        """The wrapped solver's steps, on shifted gradients."""
        if state.previous is not None:
            shift = along(torch.zeros_like(y), state.previous - y, self.rho)
            data = Wrapped(data, Shifted(shift))
        inner, update = yield from requested(self.inner, state.inner, y, received, weight, data, view)
        return LesamState(inner, y), update

    def after_mix(self, state: LesamState, before: Tensor, after: Tensor, received: Received, view: View) -> LesamState:
        """What the wrapped solver makes of it."""
        return state._replace(inner=self.inner.after_mix(state.inner, before, after, received, view))
