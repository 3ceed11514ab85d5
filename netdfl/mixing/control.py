"""Averaging with a second vector at the server, which is sent along with the model.

    SCAFFOLD   c+ = c + (1/n) sum_i (c_i+ - c_i)     over the received reports, n all clients
    FedCM      m+ = mean_i (w - y_i) / (K_i lr)      over the received reports

As long as no report is lost, c is the mean of all c_i. The clients' side is `netdfl.training.control`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from netdfl.compression.vector import finite
from netdfl.core.types import Inbox, Outbox, View
from netdfl.mixing.averaging import AveragingWrapper
from netdfl.mixing.payloads import EXTRA, pack, scalar, to_all, vector
from netdfl.training.control import CONTROL, MOMENTUM, PATH
from netdfl.training.sgd import NoState


class Beside(NamedTuple):
    """The server's state: the vector sent along with the model, shape (d,): control variate c or momentum m."""

    vector: Tensor


@dataclass(frozen=True, kw_only=True)
class ControlAveraging(AveragingWrapper):
    """SCAFFOLD's exchange: the server averages the clients' models, and sends a control variate with its own."""

    beside: ClassVar[tuple[str, ...]] = (CONTROL,)
    changes: ClassVar[tuple[str, ...]] = (CONTROL,)
    """The name of the reported vector that is a change: of c_i, which the server adds to its c."""

    def init_server(self, x: Tensor, view: View) -> Beside:
        """Return a zero control variate or momentum."""
        return Beside(x.new_zeros(x.shape))

    def broadcast(self, state: Beside, x: Tensor, view: View) -> Outbox:
        """Send the model, and with it the control variate or the momentum."""
        return to_all(view, pack(x, {self.beside[0]: state.vector}))

    def aggregate(self, state: Beside, x: Tensor, inbox: Inbox, view: View) -> tuple[Beside, Tensor]:
        """Average the models; add the mean change of the clients' control variates to the server's."""
        control = state.vector.clone()
        for message in inbox:
            control.add_(vector(message, x, EXTRA + CONTROL), alpha=1.0 / view.num_nodes)
        return Beside(control), self.inner.aggregate(NoState(), x, inbox, view)[1]


@dataclass(frozen=True, kw_only=True)
class MomentumAveraging(ControlAveraging):
    """FedCM's exchange, where the second vector is the mean gradient along the last round's path."""

    beside: ClassVar[tuple[str, ...]] = (MOMENTUM,)
    changes: ClassVar[tuple[str, ...]] = ()
    """Empty: no reported vector is a change, because clients report only a path length, which is one number."""
    moves_vanish: ClassVar[bool] = False
    """False: one momentum for all clients does not correct their differences."""

    def aggregate(self, state: Beside, x: Tensor, inbox: Inbox, view: View) -> tuple[Beside, Tensor]:
        """Average the models; set the momentum to their mean move divided by path length.

        Without a report both stay. A report whose path is too short to divide by, as at a learning rate of 0, does not
        count for the momentum.
        """
        momentum, moved, shortest = x.new_zeros(x.shape), 0, 1.0 / torch.finfo(x.dtype).max
        for message in inbox:
            path = scalar(message, x, EXTRA + PATH)
            move = x - vector(message, x)
            if path > shortest and finite(longer := momentum.add(move, alpha=1.0 / path)):
                momentum, moved = longer, moved + 1
        if moved:
            state = Beside(momentum.div_(moved))
        return state, self.inner.aggregate(NoState(), x, inbox, view)[1]
