"""What a client's report is worth: by how many examples it counts (FedAvg's n_k), and nothing where it was lost.

What a lost report has done to its client is taken back: it counts as not having taken part. A client's h_i or c_i and
the server's h or c are two halves of one sum. A client moves its half when it has trained, the server when it reads the
report; where that is lost, the halves would differ for good, and the fleet's optimum with them. The server says whose
report it did not read (`netdfl.mixing.confirming`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

from netdfl.core.types import View
from netdfl.training.base import LocalData, LocalSolver, Received, S, Solving, StepRequests, Update, requested

if TYPE_CHECKING:
    from torch import Tensor


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


class RollbackState(NamedTuple, Generic[S]):
    """The wrapped solver's state, the one before the last report, and the round of that; -1: no report yet."""

    inner: S
    before: S
    round: int


@dataclass(frozen=True)
class Rollback(Solving):
    """Any local solver; see the first lines of this file."""

    inner: LocalSolver

    def init(self, x: Tensor, view: View) -> RollbackState:
        """Nothing to take back."""
        inner = self.inner.init(x, view)
        return RollbackState(inner, inner, -1)

    def solve(
        self, state: RollbackState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[RollbackState, Update]]:
        """The wrapped solver's steps, from its state after the last report that was read."""
        lost = received.last_read is not None and received.last_read < state.round
        before = state.before if lost else state.inner
        inner, update = yield from requested(self.inner, before, y, received, weight, data, view)
        return RollbackState(inner, before, view.round), update

    def after_mix(
        self, state: RollbackState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> RollbackState:
        """What the wrapped solver makes of it."""
        return state._replace(inner=self.inner.after_mix(state.inner, before, after, received, view))
