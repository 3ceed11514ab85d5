"""Local momentum that continues from round to round: stored by the node, or derived from the change of its vector.

Kept momentum, as one optimizer for the whole training has it, stays as the node's last round left it, regardless of
mixing:

    v <- beta v + g;  y <- y - lr v              (heavy ball)
                      y <- y - lr (g + beta v)   (Nesterov)

Quasi-global momentum, with m^ kept between rounds, x the round's start, x+ the vector after mixing, K steps:

    v_0 = m^;  v <- beta v + g;  y <- y - lr v          (the local steps)
    m^ <- mu m^ + (1 - mu) (x - x+) / (lr K)            (after mixing)

Neither is sent or mixed. Sources: SGP (Assran et al. 2019), whose nodes run Nesterov's form; SlowMo (Wang et al. 2020),
whose base optimizer keeps its momentum for the rounds of one outer step; QG-DSGDm, Lin et al. 2021, where K = 1 and
mu = beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from netdfl.core.types import View
from netdfl.training.base import LocalData, MixingIndependent, Received, StepRequests, StepSolver, Update
from netdfl.training.sgd import LocalSgd, over_path

if TYPE_CHECKING:
    from torch import Tensor


class QuasiGlobalState(NamedTuple):
    """The quasi-global momentum m^, shape (d,), and the number of steps of the last local round."""

    momentum: Tensor
    steps: int


@dataclass(frozen=True)
class QuasiGlobal(StepSolver):
    """Local SGD whose velocity starts each round from the quasi-global momentum m^, a mean direction of past rounds.

    A larger `mu` makes m^ change more slowly.
    """

    sgd: LocalSgd
    mu: float

    def init(self, x: Tensor, view: View) -> QuasiGlobalState:
        """Return a state without momentum."""
        return QuasiGlobalState(x.new_zeros(x.shape), 0)

    def solve(
        self, state: QuasiGlobalState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[QuasiGlobalState, Update]]:
        """Run the local steps, starting with the quasi-global momentum m^ as the velocity."""
        x, steps = yield self.sgd.steps_from(y, weight, data, view, velocity=state.momentum.clone())
        return state._replace(steps=steps), Update(y, x)

    def after_mix(
        self, state: QuasiGlobalState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> QuasiGlobalState:
        """Move the quasi-global momentum m^ toward the mean direction of the round."""
        moved = over_path(before - after, self.sgd.rate(view) * state.steps)
        if moved is None:
            return state
        return state._replace(momentum=self.mu * state.momentum + (1.0 - self.mu) * moved)


class MomentumState(NamedTuple):
    """The momentum v that a node keeps from round to round, shape (d,)."""

    velocity: Tensor


@dataclass(frozen=True)
class KeptMomentum(StepSolver, MixingIndependent):
    """Local SGD with momentum that continues from round to round, reset every `restart_every` rounds."""

    sgd: LocalSgd
    restart_every: int | None = None

    def init(self, x: Tensor, view: View) -> MomentumState:
        """Return a state without momentum."""
        return MomentumState(x.new_zeros(x.shape))

    def solve(
        self, state: MomentumState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[MomentumState, Update]]:
        """Run the local steps, which start with the stored v and update it."""
        anew = self.restart_every is not None and view.round % self.restart_every == 0
        velocity = y.new_zeros(y.shape) if anew else state.velocity.clone()
        x, _ = yield self.sgd.steps_from(y, weight, data, view, velocity=velocity)
        return MomentumState(velocity), Update(y, x)
