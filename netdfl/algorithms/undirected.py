"""Methods by gossip on two-way links, one function each: the paper's parts with the paper's defaults.

A function's keyword parameters, those of its records one by one, are what a scenario may write under `algorithm`.
"""

from __future__ import annotations

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.late import parts
from netdfl.algorithms.parameters import AnySgd, Interpolation, Momentum, Radius, Sgd
from netdfl.core.units import PositiveInt


def dpsgd(
    exchange: Exchange, /, *, momentum: Momentum = 0.0, nesterov: bool = False, sgd: AnySgd = AnySgd(local_epochs=1)
) -> Algorithm:
    """D-PSGD as the papers run it: one local epoch of SGD, then gossip, X+ = W Z.

    y <- y - lr g(y) at every step, from x_i to z_i; then x_i+ = sum_j W_ij z_j. Sends d numbers to each
    neighbor, keeps nothing; with `momentum` (the papers have none) it keeps v, from round to round and unmixed,
    as one optimizer for the whole training does: v <- momentum v + g(y), y <- y - lr v, or with `nesterov`
    y <- y - lr (g(y) + momentum v). `dfedavgm` is the method whose v begins anew every round.
    Source: Lian et al. 2017, with the order and the epoch of DFedSAM's experiments; `lian_dpsgd` has the original
    order.
    """
    local = parts.local_sgd(sgd, momentum=momentum, nesterov=nesterov)
    return parts.gossip(exchange, parts.keeping_momentum(local))


def lian_dpsgd(exchange: Exchange, /, *, sgd: AnySgd = AnySgd(local_epochs=1)) -> Algorithm:
    """D-PSGD as first written: X+ = W X - lr grad F(X), one step, the gradient taken before mixing.

    That is `local_steps: 1`. In general y <- y - lr g(y) at every step, from x_i to z_i, and
    x_i+ = sum_j W_ij x_j + (z_i - x_i). Sends d numbers (x_i) to each neighbor, keeps nothing.
    Source: Lian et al. 2017.

    Raises:
        ValueError: Messages are to be compressed; `choco_sgd` is the method for that.
    """
    if exchange.compressor is not None:
        raise ValueError("lian_dpsgd averages whole models; its compressed counterpart is choco_sgd")
    mixing = parts.GossipThenStep(on_missing=exchange.on_missing, stale=exchange.wait.stale)
    return parts.gossip(exchange, parts.local_sgd(sgd), mixing=mixing)


def dfedavg(exchange: Exchange, /, *, sgd: AnySgd = AnySgd()) -> Algorithm:
    """DFedAvg: several local epochs of SGD, then gossip, X+ = W Z.

    y <- y - lr g(y) at every step, from x_i to z_i; then x_i+ = sum_j W_ij z_j. Sends d numbers to each
    neighbor, keeps nothing. Source: Sun, Li, Wang 2022.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd))


def dfedavgm(exchange: Exchange, /, *, momentum: Momentum = 0.9, sgd: Sgd = Sgd()) -> Algorithm:
    """DFedAvgM: DFedAvg with heavy-ball momentum, started anew every round.

    v <- momentum v + g(y), y <- y - lr v at every step, v = 0 before the first, from x_i to z_i; then
    x_i+ = sum_j W_ij z_j (X+ = W Z). Sends d numbers to each neighbor, keeps nothing: v is neither sent nor
    kept. Source: Sun, Li, Wang 2022.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd, momentum=momentum))


def dfedsam(exchange: Exchange, /, *, rho: Radius = 0.01, sgd: AnySgd = AnySgd()) -> Algorithm:
    """DFedSAM: DFedAvg with SAM's gradient, taken `rho` uphill on the same minibatch.

    y~ = y + rho g(y) / |g(y)|, y <- y - lr g(y~) at every step, from x_i to z_i; then x_i+ = sum_j W_ij z_j
    (X+ = W Z). Sends d numbers to each neighbor, keeps nothing. Source: DFedSAM Alg. 1.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd, rho=rho))


def dfedsam_mgs(
    exchange: Exchange, /, *, rho: Radius = 0.01, gossip_steps: PositiveInt = 4, sgd: AnySgd = AnySgd()
) -> Algorithm:
    """DFedSAM-MGS: DFedSAM with several gossip steps a round, X+ = W^Q Z.

    y~ = y + rho g(y) / |g(y)|, y <- y - lr g(y~) at every step, from x_i to z_i; then Q = `gossip_steps` times
    z_i <- sum_j W_ij z_j, and x_i+ = z_i. Sends Q d numbers to each neighbor, keeps nothing.
    Source: DFedSAM Alg. 1; Q = 4 in its experiments.
    """
    mixing = parts.MultiGossip(parts.undirected(exchange), gossip_steps)
    return parts.gossip(exchange, parts.local_sgd(sgd, rho=rho), mixing=mixing)


def oledfl_sgd(exchange: Exchange, /, *, beta: Interpolation = 0.8, sgd: AnySgd = AnySgd()) -> Algorithm:
    """OledFL-SGD: DFedAvg begun past the mixed vector, y_0 = x + beta (x - z_prev).

    Then y <- y - lr g(y) at every step, from y_0 to z_i, and x_i+ = sum_j W_ij z_j (X+ = W Z). Sends d numbers
    to each neighbor, keeps z, where its last local round ended. On a static W,
    beta has a limit: see `netdfl.training.ole`. Source: OledFL Alg. 1; beta 0.99 for CIFAR-10, 0.8 for CIFAR-100.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd), start=parts.Ole(beta))


def oledfl_sam(
    exchange: Exchange, /, *, beta: Interpolation = 0.8, rho: Radius = 0.1, sgd: AnySgd = AnySgd()
) -> Algorithm:
    """OledFL-SAM: OledFL with SAM's gradient, taken `rho` uphill on the same minibatch.

    y_0 = x + beta (x - z_prev), then y~ = y + rho g(y) / |g(y)|, y <- y - lr g(y~) at every step, from y_0 to
    z_i, and x_i+ = sum_j W_ij z_j (X+ = W Z). Sends d numbers to each neighbor, keeps z, where its last local
    round ended. Source: OledFL Alg. 1; beta as for `oledfl_sgd`.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd, rho=rho), start=parts.Ole(beta))


def qg_dsgdm(
    exchange: Exchange, /, *, momentum: Momentum = 0.9, mu: Momentum = 0.9, sgd: Sgd = Sgd(local_steps=1)
) -> Algorithm:
    """QG-DSGDm: momentum that begins from how the node's vector moved, mixing included.

    v_0 = m^, v <- momentum v + g, y <- y - lr v, X+ = W Z, then
    m^ <- mu m^ + (1 - mu) (x - x+) / (lr K), K the number of steps. Sends d numbers to each neighbor, keeps m^.
    Source: Lin et al. 2021, where K = 1 and mu = momentum.
    """
    return parts.gossip(exchange, parts.QuasiGlobal(parts.local_sgd(sgd, momentum=momentum), mu))
