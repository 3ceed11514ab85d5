"""Slow momentum: an exact average every `every` rounds, followed by a momentum step over these rounds.

    x_tau = (1/n) sum_j x_j                after `every` rounds of the base, gamma their step size
    u    <- beta u + (x_0 - x_tau) / gamma
    x_0  <- x_0 - alpha gamma u            the start of the next rounds

u is kept and not sent. With alpha = 1 and beta = 0 this is the base with exact averaging. Where gamma is 0, by a
schedule or by underflow, u <- beta u, and x_0 moves as in the limit of gamma to 0:
x_0 <- x_0 - alpha (x_0 - x_tau) - alpha gamma u. Source: SlowMo, Wang et al. 2020.

Two of SlowMo's options are left out. First, a push-sum base, whose numerators would be averaged and whose weights reset
to 1: that makes and destroys mass, and the methods that survive loss count mass, so they would take this for lost mass.
Second, keeping the base's buffers over the average, or averaging them: here they begin at 0 with every x_0
(`netdfl.training.momentum`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

from netdfl.core.types import Inbox, Outbox, View
from netdfl.mixing.base import Mixing, MixResult
from netdfl.training.base import S, Update
from netdfl.training.sgd import over_path

if TYPE_CHECKING:
    from torch import Tensor


class SlowState(NamedTuple, Generic[S]):
    """The wrapped mixing's state, the slow momentum u, and x_0, the vector from which the present rounds began."""

    inner: S
    momentum: Tensor
    anchor: Tensor


@dataclass(frozen=True, kw_only=True)
class SlowMomentum:
    """A wrapper of a mixing that adds slow momentum. In every `every`-th round `inner` must average exactly.

    With `base_mixes`, the rounds between two averages mix as well; otherwise nodes only train in them. `rate` returns
    the learning rate of a round.
    """

    inner: Mixing
    every: int
    alpha: float
    beta: float
    base_mixes: bool
    rate: Callable[[View], float]
    push = False

    def init(self, x: Tensor, view: View) -> SlowState:
        """Return a state without momentum that starts at `x`."""
        return SlowState(self.inner.init(x, view), x.new_zeros(x.shape), x)

    def weight(self, state: SlowState) -> float:
        """Return the wrapped mixing's push-sum weight."""
        return self.inner.weight(state.inner)

    def is_due(self, round: int) -> bool:
        """Return whether `round` ends with the exact average."""
        return (round + 1) % self.every == 0

    def num_steps(self, round: int, view: View) -> int:
        """Return the number of exchanges of the wrapped mixing; 0 for a round that only trains."""
        return self.inner.num_steps(round, view) if self.base_mixes or self.is_due(round) else 0

    def outgoing(self, state: SlowState, update: Update, step: int, view: View) -> tuple[SlowState, Outbox]:
        """Return the wrapped mixing's messages."""
        inner, outbox = self.inner.outgoing(state.inner, update, step, view)
        return state._replace(inner=inner), outbox

    def mix(self, state: SlowState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Combine vectors by the wrapped mixing; after the exact average, make the slow momentum step."""
        mixed = self.inner.mix(state.inner, update, inbox, step, view)
        state = state._replace(inner=mixed.state)
        if not self.is_due(view.round) or step + 1 < self.num_steps(view.round, view):
            return mixed._replace(state=state)
        gamma, average = self.rate(view), mixed.update.x
        moved = over_path(state.anchor - average, gamma)
        if moved is None:
            momentum = self.beta * state.momentum
            x = state.anchor - self.alpha * (state.anchor - average) - self.alpha * gamma * momentum
        else:
            momentum = self.beta * state.momentum + moved
            x = state.anchor - self.alpha * gamma * momentum
        return mixed._replace(state=SlowState(state.inner, momentum, x), update=mixed.update._replace(x=x))
