"""Perturbations that agree across the fleet: FedLESAM's and FedSMOO's.

FedLESAM: uphill is the direction from the server's model back to the one that the client received before.

    y~ = y + rho (w_old - w) / |w_old - w|;   the gradient of every step is taken at y~

w is the server's model of this round, w_old the server's model of the client's last active round, so the perturbation
is constant over a round and costs no second gradient. A client in its first active round has none. Source: FedLESAM
(Fan et al. 2024); its published code divides by other norms.

FedSMOO: SAM's, corrected so that the clients' perturbations agree with the fleet's.

    s_k = rho (g - mu_i - s) / |g - mu_i - s|;   mu_i <- mu_i + s_k - s       (every local step)
    the gradient of the step is taken at y + s_k, on the same minibatch

s comes with the server's model (`netdfl.mixing.dynamic`), which is made from the vectors that the clients send: mu_i
as in the public code, or mu_i - s_K, s_K the last step's, as in the paper. Under compression the client sends the
change of this vector, and both ends add the transmitted part. Source: FedSMOO (Sun et al. 2023) and its public code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import (
    Gradient,
    LocalData,
    LocalSolver,
    Received,
    S,
    StepRequests,
    StepSolver,
    Update,
    requested,
)
from netdfl.training.sgd import along
from netdfl.training.wrapped import Rows, WrappedData


class LesamState(NamedTuple, Generic[S]):
    """The wrapped solver's state, and the model that the client received when it was last active, shape (d,)."""

    inner: S
    previous: Tensor | None


@dataclass(frozen=True, eq=False)
class GradientShift(Rows):
    """A gradient wrapper: gradients at y are taken at y + `shift`, a constant of shape (d,), or (n, d) for n nodes."""

    shift: Tensor

    def __call__(self, gradient: Gradient) -> Gradient:
        """Return a function that takes the gradient at the shifted point."""
        return lambda at: gradient(at + self.shift)


@dataclass(frozen=True)
class Lesam(StepSolver):
    """FedLESAM's wrapper of any local solver: gradients are taken at a perturbed point, at the distance `rho`.

    The direction is from the server's model to the one that the client received in its last active round.
    """

    inner: LocalSolver
    rho: float

    def init(self, x: Tensor, view: View) -> LesamState:
        """Return a state without an earlier model of the server."""
        return LesamState(self.inner.init(x, view), None)

    def solve(
        self, state: LesamState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[LesamState, Update]]:
        """Run the wrapped solver's steps with gradients taken at the perturbed point."""
        if state.previous is not None:
            shift = along(torch.zeros_like(y), state.previous - y, self.rho)
            data = WrappedData(data, GradientShift(shift))
        inner, update = yield from requested(self.inner, state.inner, y, received, weight, data, view)
        return LesamState(inner, y), update

    def after_mix(self, state: LesamState, before: Tensor, after: Tensor, received: Received, view: View) -> LesamState:
        """Update the wrapped solver's state."""
        return state._replace(inner=self.inner.after_mix(state.inner, before, after, received, view))


PERTURBATION, DUAL = "perturbation", "dual"


class SmooState(NamedTuple, Generic[S]):
    """The state of FedSMOO's solver; vectors have shape (d,).

    Attributes:
        inner: the wrapped solver's state.
        dual: the client's dual mu_i.
        last: the last step's perturbation s_K, if it is subtracted from the dual in reports; else None.
    """

    inner: S
    dual: Tensor
    last: Tensor | None

    @property
    def spoken(self) -> Tensor:
        """The vector that the client sends for its dual variable mu_i: mu_i itself, or mu_i - s_K with s_K = `last`."""
        return self.dual if self.last is None else self.dual - self.last


@dataclass(frozen=True, eq=False)
class Ascent(Rows):
    """FedSMOO's gradient wrapper, which takes the gradient of step k at y + s_k, where s_k is the perturbation.

    The dual variable mu_i (`dual`) and s_k (`last`) change in place.
    """

    moved: ClassVar[tuple[str, ...]] = ("dual", "last")
    shared: Tensor
    dual: Tensor
    last: Tensor
    rho: float

    def __call__(self, gradient: Gradient) -> Gradient:
        """Return a function that takes the gradient at the perturbed point."""

        def perturbed(at: Tensor) -> Tensor:
            direction = gradient(at) - self.dual - self.shared
            own = along(torch.zeros_like(at), direction, self.rho)
            self.dual.add_(own).sub_(self.shared)
            self.last.copy_(own)
            return gradient(at + own)

        return perturbed


@dataclass(frozen=True)
class Smoo(StepSolver):
    """A wrapper of any local solver that adds FedSMOO's perturbation of radius `rho` to its gradients.

    The client sends its dual variable mu_i or, with `less_last`, mu_i minus the last step's perturbation s_K. With
    `by_change` it sends the change of this vector in the round.
    """

    inner: LocalSolver
    rho: float
    by_change: bool = False
    less_last: bool = False

    def init(self, x: Tensor, view: View) -> SmooState:
        """Return the state in which the client's dual variable mu_i is 0."""
        zero = x.new_zeros(x.shape)
        return SmooState(self.inner.init(x, view), zero, zero if self.less_last else None)

    def solve(
        self, state: SmooState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[SmooState, Update]]:
        """Run the wrapped solver's steps on perturbed gradients, and send the dual variable along with the model."""
        dual, last = state.dual.clone(), y.new_zeros(y.shape)
        perturbed = WrappedData(data, Ascent(received.extras[PERTURBATION], dual, last, self.rho))
        inner, update = yield from requested(self.inner, state.inner, y, received, weight, perturbed, view)
        after = SmooState(inner, dual, last if self.less_last else None)
        told = after.spoken - state.spoken if self.by_change else after.spoken
        return after, update._replace(extras={**update.extras, DUAL: told})

    def after_mix(self, state: SmooState, before: Tensor, after: Tensor, received: Received, view: View) -> SmooState:
        """Update the wrapped solver's state.

        Subtract from the dual variable mu_i the part of its change that compression left out of the message.
        """
        unsaid = received.unsaid.get(DUAL)
        dual = state.dual if unsaid is None else state.dual - unsaid
        return state._replace(inner=self.inner.after_mix(state.inner, before, after, received, view), dual=dual)
