"""DFedSGPSM with steps scaled by the push-sum weight w, for a comparison with the printed method.

The comparison is `docs/studies/push_sum_weights.md`.
"""

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
from netdfl.training.base import LocalData, LocalSolver, MixingIndependent, Received, S, Update


@dataclass(frozen=True)
class ScaledByWeight(MixingIndependent, Generic[S]):
    """A local solver that trains z = x / w directly, so that steps on z do not shrink or grow with w."""

    inner: LocalSolver[S]

    def init(self, x: Tensor, view: View) -> S:
        """Return the initial state of the inner solver."""
        return self.inner.init(x, view)

    def train(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[S, Update]:
        """Train z = y / w with weight 1, where w is `weight`; return the result times w, as the numerator x."""
        state, update = self.inner.train(state, y / weight, received, 1.0, data, view)
        return state, Update(y, update.x * weight)


def _dfedsgpsm(exchange: Exchange, /, *, rho: Radius = 0.1, momentum: Momentum = 0.9, sgd: Sgd = Sgd()) -> Algorithm:
    """Return DFedSGPSM whose steps on the numerator are scaled by the push-sum weight w, unlike the printed method."""
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
    """Return DFedSGPSM-S with steps scaled by the push-sum weight w."""
    return _scaled(
        directed.dfedsgpsm_s(
            exchange, rho=rho, momentum=momentum, neighbors=neighbors, temperature=temperature, sgd=sgd
        )
    )


def _scaled(printed: Algorithm) -> Algorithm:
    return replace(printed, local=ScaledByWeight(printed.local))


_SOURCE = "ours, after DFedSGPSM"
dfedsgpsm = Entry(build=flat(_dfedsgpsm), family="gossip", needs=COLUMN, source=_SOURCE)
"""The algorithm `{name: netdfl.study.scaled_steps:dfedsgpsm, ...}`."""
dfedsgpsm_s = Entry(build=flat(_dfedsgpsm_s), family="gossip", needs=COLUMN, source=_SOURCE, fits=chooses, selects=True)
"""The algorithm `{name: netdfl.study.scaled_steps:dfedsgpsm_s, ...}`."""
