"""Learning methods by gossip on two-way links, one function each: the paper's parts with the paper's defaults."""

from __future__ import annotations

from typing import Literal

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import AnySgd, Exchange, Fraction, Interpolation, Momentum, Radius, Sgd
from netdfl.algorithms.late import parts
from netdfl.core.units import PositiveFloat, PositiveInt


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
    return parts.gossip(exchange, parts.local_sgd(sgd, rho=rho), mixing=parts.undirected(exchange, gossip_steps))


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


def dispfl(
    exchange: Exchange,
    /,
    *,
    density: Fraction = 0.5,
    layout: Literal["erk", "uniform"] = "erk",
    anneal: Fraction = 0.5,
    anneal_rounds: PositiveInt = 500,
    regrow: Literal["gradient", "random"] = "gradient",
    order: Literal["train_first", "mix_first"] = "train_first",
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """DisPFL: each node trains under a sparse mask of its own, pruned and regrown every round.

    y <- y - lr g(y) M_i at every step, then in each layer the next mask M_i+ gives up a share r_t of its coordinates,
    the coordinates of smallest |y|, for as many others (`regrow`), r_t = (anneal / 2) (1 + cos(pi t / anneal_rounds))
    and 0 from `anneal_rounds` on; then x_i = (sum_j y_j M_j / sum_j M_j) M_i+ over the node and its neighbors. Sends
    the nonzero coordinates and d bits to each neighbor, keeps M_i+. The paper's round averages before it trains: the
    same sequence, but a round's model, and so the last, is the node's own y_i, which the paper calls personal: `order:
    mix_first`, which keeps x_i too. `train_first` records x_i, as every other method here does, so that figures
    compare. Source: Dai et al. 2022.
    """
    if exchange.compressor is not None:
        raise ValueError("dispfl sends sparse vectors already; remove compression")
    local = parts.local_sgd(sgd)
    solver = parts.MaskedSgd(
        sgd=local,
        density=density,
        layout=layout,
        anneal=anneal,
        anneal_rounds=anneal_rounds,
        regrow=regrow,
        streams=exchange.streams,
    )
    return parts.gossip(exchange, solver, mixing=parts.MaskedAverage(for_next=order == "mix_first"))


def slowmo(
    exchange: Exchange,
    /,
    *,
    momentum: Momentum = 0.0,
    nesterov: bool = False,
    buffer: Literal["outer_step", "round"] = "outer_step",
    every: PositiveInt = 4,
    between: Literal["train", "gossip"] = "train",
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
