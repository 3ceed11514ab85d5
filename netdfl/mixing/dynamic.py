"""FedDyn's averaging: the new model is the mean of the models plus the mean of all clients' drifts.

    h+ = h + (1/n) sum_i (y_i - w);   w+ = mean_i y_i + h+       over the received reports, n all clients
    FedSMOO besides: s+ = rho mean_i mu_i / |mean_i mu_i|, mu_i or the part of it that the clients send

mu_i is the dual variable of client i, and h_i its drift: the sum of the changes y_i - w by its rounds. As long as no
report is lost, h is the mean of all h_i, which therefore need not be sent. The clients' sides are
`netdfl.training.control` and `netdfl.training.perturbation`. Sources: Acar et al. 2021; Sun et al. 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import Inbox, NodeId, Outbox, View
from netdfl.mixing.averaging import AveragingWrapper
from netdfl.mixing.payloads import EXTRA, pack, to_all, vector
from netdfl.training.perturbation import DUAL, PERTURBATION
from netdfl.training.sgd import NoState, along


class Drifted(NamedTuple):
    """FedDyn's state at the server: the mean h of the clients' drifts, shape (d,)."""

    drift: Tensor


@dataclass(frozen=True, kw_only=True)
class DynamicAveraging(AveragingWrapper):
    """FedDyn's exchange: averaging corrected by the mean of the clients' drifts."""

    def init_server(self, x: Tensor, view: View) -> Drifted:
        """Return the state with a zero drift h."""
        return Drifted(x.new_zeros(x.shape))

    def broadcast(self, state: Drifted, x: Tensor, view: View) -> Outbox:
        """Send the model, without other vectors."""
        return to_all(view, pack(x))

    def aggregate(self, state: Drifted, x: Tensor, inbox: Inbox, view: View) -> tuple[Drifted, Tensor]:
        """Return the mean of the models plus the new drift h. Without a report the model stays unchanged."""
        if not len(inbox):
            return state, x
        drift = state.drift.clone()
        for message in inbox:
            drift.add_(vector(message, x) - x, alpha=1.0 / view.num_nodes)
        return Drifted(drift), self.inner.aggregate(NoState(), x, inbox, view)[1] + drift


class Perturbed(NamedTuple):
    """The server's state in FedSMOO; each vector has shape (d,).

    Attributes:
        drift: the mean h of the clients' drifts.
        shared: the fleet's perturbation s.
        duals: the dual variable mu_i of each client, if clients report its changes.
    """

    drift: Tensor
    shared: Tensor
    duals: Mapping[NodeId, Tensor]


@dataclass(frozen=True, kw_only=True)
class SmooAveraging(AveragingWrapper):
    """FedSMOO's exchange: FedDyn's, with the perturbation s sent along with the model.

    With `by_change`, client i reports the change of its dual variable mu_i, and the server keeps every client's mu_i.
    """

    beside: ClassVar[tuple[str, ...]] = (PERTURBATION,)

    rho: float
    by_change: bool = False

    @property
    def changes(self) -> tuple[str, ...]:
        """The name under which clients report the change of their dual variable mu_i, if they do."""
        return (DUAL,) if self.by_change else ()

    def init_server(self, x: Tensor, view: View) -> Perturbed:
        """Return the state with zero drift h and zero perturbation s."""
        return Perturbed(x.new_zeros(x.shape), x.new_zeros(x.shape), {})

    def broadcast(self, state: Perturbed, x: Tensor, view: View) -> Outbox:
        """Send the model and the perturbation s."""
        return to_all(view, pack(x, {PERTURBATION: state.shared}))

    def aggregate(self, state: Perturbed, x: Tensor, inbox: Inbox, view: View) -> tuple[Perturbed, Tensor]:
        """Aggregate as FedDyn does; set s to the mean of the received dual variables, scaled to length rho."""
        if not len(inbox):
            return state, x
        drifted, after = DynamicAveraging(inner=self.inner).aggregate(Drifted(state.drift), x, inbox, view)
        duals = {message.src: vector(message, x, EXTRA + DUAL) for message in inbox}
        if self.by_change:
            duals = {j: state.duals[j] + change if j in state.duals else change for j, change in duals.items()}
        shared = along(torch.zeros_like(x), torch.stack(list(duals.values())).mean(0), self.rho)
        return Perturbed(drifted.drift, shared, {**state.duals, **duals} if self.by_change else {}), after
