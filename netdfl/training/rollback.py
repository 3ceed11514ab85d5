"""Wrappers for a client's report (its sent model): one adds the number of examples n_k, one undoes lost reports.

A client whose report was lost takes back the change of its state in that round, as if it had been inactive. A client's
h_i (FedDyn) or c_i (SCAFFOLD) and the server's h or c are two halves of one sum. A client moves its half when it has
trained, the server when it uses the report; after a loss, the halves would differ for good, and with them the fleet's
optimum. The server names the clients whose report it did not use (`netdfl.mixing.confirming`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

from netdfl.core.types import View
from netdfl.training.base import LocalData, LocalSolver, Received, S, StepRequests, StepSolver, Update, requested

if TYPE_CHECKING:
    from torch import Tensor


SAMPLES = "samples"


@dataclass(frozen=True)
class SampleCounter(StepSolver, Generic[S]):
    """A wrapper of any local solver that sends the number of examples n_k along with its model."""

    inner: LocalSolver[S]

    def init(self, x: Tensor, view: View) -> S:
        """Return the wrapped solver's state."""
        return self.inner.init(x, view)

    def solve(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[S, Update]]:
        """Run the wrapped solver's steps, and add the number of examples to the vectors that are sent."""
        state, update = yield from requested(self.inner, state, y, received, weight, data, view)
        count = y.new_tensor([float(data.num_samples)])
        return state, update._replace(extras={**update.extras, SAMPLES: count})

    def after_mix(self, state: S, before: Tensor, after: Tensor, received: Received, view: View) -> S:
        """Update the wrapped solver's state."""
        return self.inner.after_mix(state, before, after, received, view)


class RollbackState(NamedTuple, Generic[S]):
    """The state of a solver that can undo a lost report.

    It has the wrapped solver's state, its state before the last report (the model sent to the server), and the round of
    that report (-1: none).
    """

    inner: S
    before: S
    round: int


@dataclass(frozen=True)
class Rollback(StepSolver):
    """A wrapper of any local solver that undoes local rounds whose result was lost on the way to the server."""

    inner: LocalSolver

    def init(self, x: Tensor, view: View) -> RollbackState:
        """Return a state without a local round to undo."""
        inner = self.inner.init(x, view)
        return RollbackState(inner, inner, -1)

    def solve(
        self, state: RollbackState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[RollbackState, Update]]:
        """Run the wrapped solver's steps, starting from its state after the last result that the server has used."""
        lost = received.last_read is not None and received.last_read < state.round
        before = state.before if lost else state.inner
        inner, update = yield from requested(self.inner, before, y, received, weight, data, view)
        return RollbackState(inner, before, view.round), update

    def after_mix(
        self, state: RollbackState, before: Tensor, after: Tensor, received: Received, view: View
    ) -> RollbackState:
        """Update the wrapped solver's state."""
        return state._replace(inner=self.inner.after_mix(state.inner, before, after, received, view))
