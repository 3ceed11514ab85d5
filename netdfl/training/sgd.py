"""Local SGD on the flat vector: plain, with momentum, with SAM's ascent, on push-sum numerators.

With g the minibatch gradient and z = y / w (w is the push-sum weight, 1 without push-sum):

    SAM         g~ = g(z + rho g(z) / |g(z)|)          (rho = 0: g~ = g(z))
    correction  g~ <- scale g~ + c                     (methods that have one; else scale = 1, c = 0)
    clipping    g~ <- g~ min(1, clip / |g~|)
    decay       g~ <- g~ + weight_decay z
    momentum    v <- momentum v + g~,  v = 0 at the start of every round unless another solver keeps it
    step        y <- y - lr lr_decay^t s_t v         (Nesterov: g~ + momentum v in place of v)

s_t is the schedule's factor in round t, by default 1. Where all of a round's gradients are taken at one point, the
steps do not move that point: x <- y - lr sum_k g~(z; xi_k).

Both gradients of SAM use the same minibatch, norms are over all parameters, and the ascent never includes weight
decay or the correction. A correction is clipped together with the gradient, because the published code of SCAFFOLD,
FedDyn and similar methods has it in the loss.

Sources: DFedAvg (Sun, Li, Wang), DFedSAM Alg. 1, DFedSGPSM Alg. 1; FL-Simulator for the correction; AsyNG, as
DFedSGPSM describes it, for gradients at one point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from netdfl.compression.vector import finite
from netdfl.core.types import View
from netdfl.training.base import (
    Gradient,
    LocalData,
    MixingIndependent,
    Received,
    StepRequests,
    StepResult,
    StepSolver,
    Update,
)
from netdfl.training.stepping import CONSTANT, Schedule

if TYPE_CHECKING:
    from torch import Tensor


TINY = 1e-12


class NoState(NamedTuple):
    """The empty state of a part of an algorithm that stores nothing between rounds."""


def sam(gradient: Gradient, at: Tensor, rho: float) -> Tensor:
    """Return the gradient at the point `rho` uphill from `at`, on the same minibatch."""
    return gradient(along(at, gradient(at), rho))


def along(at: Tensor, direction: Tensor, distance: float) -> Tensor:
    """Return the point `distance` away from `at` in a direction; `at` itself if the direction is zero.

    Vectors have shape (d,), or (n, d), where each row has a direction of its own.
    """
    direction, norm, _ = _measured(direction)
    return at.addcmul(direction, (distance / norm).expand_as(direction))


def clip(gradient: Tensor, limit: float) -> Tensor:
    """Scale `gradient`, or each of its rows, in place to a norm of at most `limit`."""
    _, norm, scale = _measured(gradient)
    if scale is None:
        return gradient.mul_((limit / norm).clamp(max=1.0))
    return gradient.mul_(scale).mul_((limit / norm).clamp(max=1.0 / scale))


def _measured(x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (x, the norm of each row, None), or the first two multiplied by a scale, and the scale.

    The scale is a power of two, used where the norm's square would overflow. So finite numbers of any size have a
    finite norm.
    """
    norm = x.norm(dim=-1, keepdim=True)
    if x.is_cpu and finite(norm):
        return x, norm + TINY, None
    kept = norm.isfinite().to(x.dtype)  # on a GPU nobody waits for the answer
    scale = kept + (1.0 - kept) * 2.0 ** (-80 if x.dtype.itemsize <= 4 else -528)
    x = x * scale
    return x, x.norm(dim=-1, keepdim=True) + TINY * scale, scale


def over_path(move: Tensor, path: float) -> Tensor | None:
    """Return the mean direction of a round's local steps, `move` / `path`; None if the quotient is not finite.

    `move` is the change of the vector in the round. `path` is the sum of the learning rates. It may be 0, as in some
    schedules, or too small for the type of `move`; then the round counts as one without steps.
    """
    found = move / path if path else None
    return found if found is not None and finite(found) else None


class Stateless:
    """A part of an algorithm that stores nothing between rounds."""

    def init(self, x: Tensor, view: View) -> NoState:
        """Return the empty state."""
        return NoState()


class Memoryless(Stateless, MixingIndependent):
    """A local solver that stores nothing between rounds."""


@dataclass(frozen=True, kw_only=True)
class LocalSgd(StepSolver, Memoryless):
    """Local SGD: K steps y <- y - lr g(y), with optional momentum, SAM's ascent, clipping and weight decay.

    A subclass is computed node by node, unless it sets `rows = True` itself. This promises two things: its `slope` and
    `descent` also work on a matrix, treating each row as a separate vector, and its instances are equal only if they
    compute the same.
    """

    rows: ClassVar[bool] = True

    lr: float
    lr_decay: float = 1.0
    epochs: int | None = None
    steps: int | None = None
    momentum: float = 0.0
    nesterov: bool = False
    rho: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    schedule: Schedule = CONSTANT

    def rate(self, view: View) -> float:
        """Return the learning rate in the round of `view`."""
        return self.lr * self.lr_decay**view.round * self.schedule.factor(view.round)

    def slope(self, gradient: Gradient, z: Tensor) -> Tensor:
        """Return the gradient for one step at `z`, shape (d,) or (n, d): SAM's, or the plain one."""
        return sam(gradient, z, self.rho) if self.rho else gradient(z)

    def descent(self, gradient: Gradient, z: Tensor, scale: float = 1.0, correction: Tensor | None = None) -> Tensor:
        """Return the direction g~ of one step at `z`, shape (d,) or (n, d).

        It is the `slope` (the gradient), scaled, corrected, clipped, and with weight decay added.
        """
        g = self.slope(gradient, z)
        if scale != 1.0:
            g = g.mul_(scale)
        if correction is not None:
            g = g.add_(correction)
        if self.clip_norm is not None:
            g = clip(g, self.clip_norm)
        return g.add_(z, alpha=self.weight_decay) if self.weight_decay else g

    def solve(
        self, state: NoState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[NoState, Update]]:
        """Run the local round: yield its steps as one call for the caller to run; `Update.before` is `y`, unchanged."""
        x, _ = yield self.steps_from(y, weight, data, view)
        return state, Update(y, x)

    def steps_from(
        self,
        y: Tensor,
        weight: float,
        data: LocalData,
        view: View,
        *,
        velocity: Tensor | None = None,
        scale: float = 1.0,
        correction: Tensor | None = None,
    ) -> LocalSteps:
        """Return the local steps from `y`, which are computed when called.

        For other solvers: `velocity` is the initial momentum, updated in place by the steps; `scale` and `correction`
        go into every step's `descent`.
        """
        return LocalSteps(self, y, weight, data, self.rate(view), velocity, scale, correction)


@dataclass(eq=False, slots=True)
class LocalSteps:
    """A solver's request for local steps.

    Attributes:
        sgd: the local SGD.
        y: the vector to start from, which is not changed.
        weight: the push-sum weight: gradients are taken at y / weight.
        data: the node's data.
        lr: the learning rate.
        velocity: the initial momentum, which the steps update in place; None without momentum.
        scale: the factor on every gradient.
        correction: the vector to add to every gradient; None: none.
    """

    sgd: LocalSgd
    y: Tensor
    weight: float
    data: LocalData
    lr: float
    velocity: Tensor | None
    scale: float
    correction: Tensor | None

    @property
    def _adds_nothing(self) -> bool:
        """Whether a step whose gradient is 0 leaves the vector unchanged."""
        plain = type(self.sgd) is LocalSgd and not self.sgd.weight_decay
        return plain and self.velocity is None and self.correction is None

    def __call__(self) -> StepResult:
        """Compute the steps; return the vector and the number of steps."""
        sgd, velocity, count = self.sgd, self.velocity, 0
        y = self.y.clone() if getattr(self.data, "writes", False) else self.y
        if self._adds_nothing and (rests := getattr(self.data, "rests", None)) is not None and rests(y):
            return y, 0
        still = getattr(self.data, "still", 0)  # coordinates at the end that steps leave alone: running statistics
        for gradient in self.data.steps(epochs=sgd.epochs, steps=sgd.steps):
            z = y if self.weight == 1.0 else y / self.weight
            step = sgd.descent(gradient, z, self.scale, self.correction)
            y = carried(self.data, y, self.weight)
            if still:
                step[-still:] = 0
            if sgd.momentum:
                velocity = step.clone() if velocity is None else velocity.mul_(sgd.momentum).add_(step)
                step = step.add(velocity, alpha=sgd.momentum) if sgd.nesterov else velocity
            y = y.add(step, alpha=-self.lr) if y is self.y else y.add_(step, alpha=-self.lr)
            count += 1
        return y, count


def carried(data: LocalData, y: Tensor, weight: float) -> Tensor:
    """Return `y`, a push-sum numerator, or in its place values that the model itself wrote, times `weight`.

    A module may write to its parameters in a forward pass, as `Embedding(max_norm=...)` does.
    """
    written: Tensor | None = getattr(data, "written", None)
    return y if written is None else written if weight == 1.0 else written * weight


class PlainStart(Stateless):
    """The default start of a local round, at the mixed vector itself."""

    def begin(self, state: NoState, x: Tensor, view: View) -> tuple[NoState, Tensor]:
        """Return `x` itself."""
        return state, x

    def trained(self, state: NoState, update: Update, view: View) -> NoState:
        """Return the state unchanged."""
        return state


@dataclass(frozen=True)
class FixedPoint(Memoryless):
    """A local solver that takes all of a round's gradients at the same point, without momentum."""

    sgd: LocalSgd

    def train(
        self, state: NoState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[NoState, Update]:
        """Make one step by the sum of the round's gradients."""
        z, total, x = y / weight, y.new_zeros(y.shape), y
        for gradient in data.steps(epochs=self.sgd.epochs, steps=self.sgd.steps):
            total.add_(self.sgd.descent(gradient, z))
            x = carried(data, x, weight)
        return state, Update(y, x.add(total, alpha=-self.sgd.rate(view)))
