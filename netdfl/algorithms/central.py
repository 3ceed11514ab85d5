"""Methods with a server, one function each: the paper's parts with the paper's defaults.

A function's keyword parameters, those of its records one by one, are what a scenario may write under `algorithm`.
"""

from __future__ import annotations

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.late import parts
from netdfl.algorithms.parameters import AnySgd, Fraction, Radius, Sgd, Weighting
from netdfl.core.units import PositiveFloat


def fedavg(
    exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, weighting: Weighting = "uniform", sgd: AnySgd = AnySgd()
) -> Algorithm:
    """FedAvg: the server averages what the round's participants made of its model.

    y <- y - lr g(y) at every step, from w to y_i; then w+ = w + server_lr mean(y_i - w). Sends d numbers down
    and d up, keeps nothing. The mean is uniform, as the methods that are compared with FedAvg have it, and because
    their clients have equally many examples; `weighting: samples` is McMahan's, sum_i n_i (y_i - w) / sum_i n_i,
    and sends n_i, one number more up. Source: McMahan et al. 2017.
    """
    return parts.averaged(exchange, parts.local_sgd(sgd), server_lr, weighting)


def fedsam(
    exchange: Exchange,
    /,
    *,
    server_lr: PositiveFloat = 1.0,
    rho: Radius = 0.05,
    weighting: Weighting = "uniform",
    sgd: AnySgd = AnySgd(),
) -> Algorithm:
    """FedSAM: FedAvg with SAM's gradient, taken `rho` uphill on the same minibatch.

    y~ = y + rho g(y) / |g(y)|, y <- y - lr g(y~) at every step, from w to y_i; then
    w+ = w + server_lr mean(y_i - w). Sends d numbers down and d up, keeps nothing. `weighting` as in `fedavg`.
    Source: Qu et al. 2022; uniform weights.
    """
    return parts.averaged(exchange, parts.local_sgd(sgd, rho=rho), server_lr, weighting)


def mofedsam(
    exchange: Exchange,
    /,
    *,
    server_lr: PositiveFloat = 1.0,
    rho: Radius = 0.05,
    alpha: Fraction = 0.1,
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """MoFedSAM: FedSAM whose every step is blended with the fleet's momentum m.

    g~ = g(y + rho g(y) / |g(y)|), y <- y - lr (alpha g~ + (1 - alpha) m) at each of K steps, from w to y_i; then
    w+ = w + server_lr mean(y_i - w), m+ = mean((w - y_i) / (K lr)).
    Sends 2 d numbers down and d + 1 up, the server keeps m. alpha is written beta in the paper.
    Source: Qu et al. 2022.
    """
    local = parts.local_sgd(sgd, rho=rho)
    mixing = parts.MomentumAveraging(inner=parts.Averaging(server_lr=server_lr))
    return parts.server(exchange, parts.Blended(local, alpha), mixing)


def scaffold(exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, sgd: Sgd = Sgd()) -> Algorithm:
    """SCAFFOLD: every step is corrected by how the client's gradients differ from the fleet's.

    y <- y - lr (g(y) - c_i + c) at each of K steps, from w to y_i; then c_i+ = c_i - c + (w - y_i) / (K lr),
    w+ = w + server_lr mean(y_i - w), c+ = c + (1/n) sum(c_i+ - c_i). Sends 2 d numbers down and 2 d up, clients
    keep c_i, now and before the last report, which counts for neither end where it is lost; the server keeps c.
    Source: Karimireddy et al. 2020, option II.
    """
    solver = parts.Controlled(parts.local_sgd(sgd))
    return parts.server(exchange, parts.Rollback(solver), parts.controlled(server_lr))


def fedgamma(
    exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, rho: Radius = 0.05, sgd: Sgd = Sgd()
) -> Algorithm:
    """FedGAMMA: SCAFFOLD with SAM's gradient, the ascent by the client's plain gradient.

    g~ = g(y + rho g(y) / |g(y)|), y <- y - lr (g~ - c_i + c) at each of K steps, from w to y_i; then as `scaffold`
    c_i+ = c_i - c + (w - y_i) / (K lr), w+ = w + server_lr mean(y_i - w), c+ = c + (1/n) sum(c_i+ - c_i).
    Sends 2 d numbers down and 2 d up, clients keep c_i, the server c. Source: Dai et al. 2023.
    """
    solver = parts.Controlled(parts.local_sgd(sgd, rho=rho))
    return parts.server(exchange, parts.Rollback(solver), parts.controlled(server_lr))
