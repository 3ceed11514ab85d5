"""Local momentum that outlives its round: as one optimizer for the whole training has it.

    v <- beta v + g;  y <- y - lr v              (heavy ball)
                      y <- y - lr (g + beta v)   (Nesterov)

v is as the node's last round left it, whatever mixing did to the model since: it is neither sent nor mixed.
Sources: SGP (Assran et al. 2019), whose nodes run Nesterov's form; SlowMo (Wang et al. 2020), whose base has a
buffer for the rounds of an outer step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import LocalData, Received, Untouched, Update
from netdfl.training.sgd import LocalSgd
from netdfl.training.step_requests import Solving, StepRequests


class MomentumState(NamedTuple):
    """v, shape (d,)."""

    velocity: Tensor


@dataclass(frozen=True)
class KeptMomentum(Solving, Untouched):
    """Local SGD with momentum whose v goes on from round to round; from 0 every `restart_every` rounds, where given."""

    sgd: LocalSgd
    restart_every: int | None = None

    def init(self, x: Tensor, view: View) -> MomentumState:
        """No momentum yet."""
        return MomentumState(x.new_zeros(x.shape))

    def solve(
        self, state: MomentumState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[MomentumState, Update]]:
        """The local steps, from v and back to it."""
        anew = self.restart_every is not None and view.round % self.restart_every == 0
        velocity = y.new_zeros(y.shape) if anew else state.velocity.clone()
        x, _ = yield self.sgd.steps_from(y, weight, data, view, velocity=velocity)
        return MomentumState(velocity), Update(y, x)
