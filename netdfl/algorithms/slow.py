"""Methods that average exactly now and then, one function each."""

from __future__ import annotations

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.late import parts
from netdfl.algorithms.parameters import Between, Buffer, Momentum, Sgd
from netdfl.core.units import PositiveFloat, PositiveInt


def slowmo(
    exchange: Exchange,
    /,
    *,
    momentum: Momentum = 0.0,
    nesterov: bool = False,
    buffer: Buffer = "outer_step",
    every: PositiveInt = 4,
    between: Between = "train",
    alpha: PositiveFloat = 1.0,
    beta: Momentum = 0.5,
    sgd: Sgd = Sgd(local_epochs=1),
) -> Algorithm:
    """SlowMo: every few rounds the exact average, and a step of slow momentum over those rounds.

    x_tau = (1/n) sum_j x_j after `every` rounds from x_0, u <- beta u + (x_0 - x_tau) / lr, x_0 <- x_0 - alpha lr u.
    v <- momentum v + g(y), y <- y - lr v at every step (`nesterov`: y <- y - lr (g(y) + momentum v)). Between, nodes
    only train, or gossip too (`between: gossip`). The graph of a round in which the average is due must give it.
    v begins at 0 with each x_0 and lives for the outer step, because the paper's base is one optimizer run for
    `every` rounds; `buffer: round` begins it anew every round, as `dfedavgm` does. Sends d numbers to each neighbor in
    rounds that mix, keeps u, x_0 and v. The base is gossip, never push-sum; the paper's other choices, v kept over
    the average or averaged too, are not here. Source: Wang et al. 2020.
    """
    if exchange.compressor is not None:
        raise ValueError("slowmo needs the exact average; remove compression")
    local = parts.local_sgd(sgd, momentum=momentum, nesterov=nesterov)
    mixing = parts.SlowMomentum(
        inner=parts.Gossip(on_missing=exchange.on_missing),
        every=every,
        alpha=alpha,
        beta=beta,
        base_mixes=between == "gossip",
        rate=local.rate,
    )
    solver = parts.keeping_momentum(local, restart_every=every) if buffer == "outer_step" else local
    return parts.gossip(exchange, solver, mixing=mixing)
