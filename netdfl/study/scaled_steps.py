"""DFedSGPSM with steps scaled by w: what docs/studies/push_sum_weights.md compares the printed method with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic

from torch import Tensor

from netdfl.algorithms import directed
from netdfl.algorithms.base import Algorithm, Entry
from netdfl.algorithms.catalog import COLUMN
from netdfl.algorithms.exchange import Exchange, Momentum, Radius, Sgd, flat
from netdfl.algorithms.fitness import chooses
from netdfl.core.types import View
from netdfl.core.units import PositiveFloat, PositiveInt
from netdfl.training.base import LocalData, LocalSolver, Received, S, Untouched, Update


@dataclass(frozen=True)
class ScaledByWeight(Untouched, Generic[S]):
    """A local solver that trains z = x / w itself, so that its steps are as long however small w is."""

    inner: LocalSolver[S]

    def init(self, x: Tensor, view: View) -> S:
        """As the wrapped solver."""
        return self.inner.init(x, view)

    def train(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[S, Update]:
        """Train z with weight 1, and give back the numerator."""
        state, update = self.inner.train(state, y / weight, received, 1.0, data, view)
        return state, Update(y, update.x * weight)


def _dfedsgpsm(exchange: Exchange, /, *, rho: Radius = 0.1, momentum: Momentum = 0.9, sgd: Sgd = Sgd()) -> Algorithm:
    """DFedSGPSM whose steps on the numerator are w lr long, as if z were trained: not what the paper prints."""
    return _scaled(directed.dfedsgpsm(exchange, rho=rho, momentum=momentum, sgd=sgd))


def _dfedsgpsm_s(
    exchange: Exchange,
    /,
    *,
    rho: Radius = 0.1,
    momentum: Momentum = 0.9,
    neighbors: PositiveInt = 4,
    temperature: PositiveFloat = 1.0,
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """DFedSGPSM-S with such steps."""
    return _scaled(
        directed.dfedsgpsm_s(
            exchange, rho=rho, momentum=momentum, neighbors=neighbors, temperature=temperature, sgd=sgd
        )
    )


def _scaled(printed: Algorithm) -> Algorithm:
    return replace(printed, local=ScaledByWeight(printed.local))


_SOURCE = "ours, after DFedSGPSM"
dfedsgpsm = Entry(build=flat(_dfedsgpsm), family="gossip", needs=COLUMN, source=_SOURCE)
"""`algorithm: {name: netdfl.study.scaled_steps:dfedsgpsm, ...}`"""
dfedsgpsm_s = Entry(build=flat(_dfedsgpsm_s), family="gossip", needs=COLUMN, source=_SOURCE, fits=chooses, selects=True)
"""`algorithm: {name: netdfl.study.scaled_steps:dfedsgpsm_s, ...}`"""
