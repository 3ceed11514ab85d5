"""Methods that average exactly now and then, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.parameters import Between, Momentum, Sgd
from netdfl.core.lazy import lazy_module
from netdfl.core.units import PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from netdfl.algorithms import parts
    from netdfl.mixing import slow_momentum
else:
    parts = lazy_module("netdfl.algorithms.parts")
    slow_momentum = lazy_module("netdfl.mixing.slow_momentum")


def slowmo(
    exchange: Exchange,
    /,
    *,
    momentum: Momentum = 0.0,
    every: PositiveInt = 4,
    between: Between = "train",
    alpha: PositiveFloat = 1.0,
    beta: Momentum = 0.5,
    sgd: Sgd = Sgd(local_epochs=1),
) -> Algorithm:
    """SlowMo: every few rounds the exact average, and a step of slow momentum over those rounds.

    x_tau = (1/n) sum_j x_j after `every` rounds from x_0, u <- beta u + (x_0 - x_tau) / lr, x_0 <- x_0 - alpha lr u.
    In a round v <- momentum v + g(y), y <- y - lr v at every step, v = 0 before the first. Between, nodes only
    train, or gossip too (`between: gossip`). The graph of a round in which the average is due must give it. Sends
    d numbers to each neighbor in rounds that mix, keeps u and x_0. The base is gossip, never push-sum, and its
    buffer v is always reset, never kept or averaged. Source: Wang et al. 2020.
    """
    if exchange.compressor is not None:
        raise ValueError("slowmo needs the exact average; remove compression")
    local = parts.local_sgd(sgd, momentum=momentum)
    mixing = slow_momentum.SlowMomentum(
        inner=parts.Gossip(on_missing=exchange.on_missing),
        every=every,
        alpha=alpha,
        beta=beta,
        base_mixes=between == "gossip",
        rate=local.rate,
    )
    return parts.gossip(exchange, local, mixing=mixing)
