"""Federated learning methods with a server, one function each: the paper's parts with the paper's defaults."""

from __future__ import annotations

from typing import Literal

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import AnySgd, Exchange, Fraction, Radius, Sgd, Weighting
from netdfl.algorithms.late import parts
from netdfl.core.units import PositiveFloat


def fedavg(
    exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, weighting: Weighting = "uniform", sgd: AnySgd = AnySgd()
) -> Algorithm:
    """FedAvg: the server averages the models that the round's participants trained from its own.

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
    return parts.server(exchange, parts.FedCmSolver(local, alpha), mixing)


def scaffold(exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, sgd: Sgd = Sgd()) -> Algorithm:
    """SCAFFOLD: every step is corrected by how the client's gradients differ from the fleet's.

    y <- y - lr (g(y) - c_i + c) at each of K steps, from w to y_i; then c_i+ = c_i - c + (w - y_i) / (K lr),
    w+ = w + server_lr mean(y_i - w), c+ = c + (1/n) sum(c_i+ - c_i). Sends 2 d numbers down and 2 d up, clients
    keep c_i, now and before the last report, which counts for neither end where it is lost; the server keeps c.
    Source: Karimireddy et al. 2020, option II.
    """
    solver = parts.ScaffoldSolver(parts.local_sgd(sgd))
    return parts.server(exchange, parts.Rollback(solver), parts.controlled(server_lr))


def fedgamma(
    exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, rho: Radius = 0.05, sgd: Sgd = Sgd()
) -> Algorithm:
    """FedGAMMA: SCAFFOLD with SAM's gradient, the ascent by the client's plain gradient.

    g~ = g(y + rho g(y) / |g(y)|), y <- y - lr (g~ - c_i + c) at each of K steps, from w to y_i; then as `scaffold`
    c_i+ = c_i - c + (w - y_i) / (K lr), w+ = w + server_lr mean(y_i - w), c+ = c + (1/n) sum(c_i+ - c_i).
    Sends 2 d numbers down and 2 d up, clients keep c_i, the server c. Source: Dai et al. 2023.
    """
    solver = parts.ScaffoldSolver(parts.local_sgd(sgd, rho=rho))
    return parts.server(exchange, parts.Rollback(solver), parts.controlled(server_lr))


def feddyn(exchange: Exchange, /, *, penalty: PositiveFloat = 0.1, sgd: Sgd = Sgd()) -> Algorithm:
    """FedDyn: clients are drawn to the server's model and pushed by how they drifted before.

    y <- y - lr (g(y) + penalty (y - w) + penalty h_i) at every step, from w to y_i; then h_i+ = h_i + (y_i - w),
    h+ = h + (1/n) sum(y_i - w), w+ = mean(y_i) + h+. Sends d numbers down and d up, because the server can
    derive the mean h of all h_i from the models; clients keep h_i, the server h. penalty is written
    lambda (or alpha) in the papers. Source: Acar et al. 2021.
    """
    solver = parts.Rollback(parts.FedDynSolver(parts.local_sgd(sgd), penalty))
    return parts.server(exchange, solver, parts.ConfirmingAggregation(inner=parts.DynamicAveraging()))


def fedsmoo(
    exchange: Exchange,
    /,
    *,
    rho: Radius = 0.1,
    penalty: PositiveFloat = 0.1,
    form: Literal["code", "paper"] = "code",
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """FedSMOO: FedDyn with a perturbation that all clients are brought to agree on.

    s_k = rho (g(y) - mu_i - s) / |g(y) - mu_i - s|, mu_i <- mu_i + s_k - s,
    y <- y - lr (g(y + s_k) + penalty (y - w) + penalty h_i) at every step, from w to y_i; then as `feddyn`
    h_i+ = h_i + (y_i - w), h+ = h + (1/n) sum(y_i - w), w+ = mean(y_i) + h+, and
    s+ = rho mean(mu_i) / |mean(mu_i)|. That is s as in the public code, which published figures come from;
    `form: paper` has s+ = rho mean(mu_i - s_iK) / |mean(mu_i - s_iK)|, s_iK the client's last s_k. Sends 2 d numbers
    down (w, s) and 2 d up (y_i, mu_i or mu_i - s_iK); clients keep h_i and mu_i, in `paper` s_iK too, the server h
    and s. With `compression.extras: compressed` mu_i goes up by its changes, and the server keeps every client's.
    Source: Sun et al. 2023 and its public code.
    """
    by_change = exchange.extras == "compressed"
    solver = parts.Smoo(parts.FedDynSolver(parts.local_sgd(sgd), penalty), rho, by_change, less_last=form == "paper")
    averaging = parts.SmooAveraging(rho=rho, by_change=by_change)
    return parts.server(exchange, parts.Rollback(solver), parts.ConfirmingAggregation(inner=averaging))


def fedlesam(
    exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, rho: Radius = 0.01, sgd: Sgd = Sgd()
) -> Algorithm:
    """FedLESAM: gradients are taken uphill, where uphill is back along the way of the server's model.

    y~ = y + rho (w_old - w) / |w_old - w|, y <- y - lr g(y~) at every step, from w to y_i, w_old the model that
    the client received when it last took part (the first time y~ = y); then w+ = w + server_lr mean(y_i - w).
    One gradient a step. Sends d numbers down and d up, clients
    keep w_old. Source: Fan et al. 2024; not its published code, which divides by other norms.
    """
    solver = parts.Lesam(parts.local_sgd(sgd), rho)
    return parts.server(exchange, solver, parts.Averaging(server_lr=server_lr))


def fedlesam_s(
    exchange: Exchange, /, *, server_lr: PositiveFloat = 1.0, rho: Radius = 0.01, sgd: Sgd = Sgd()
) -> Algorithm:
    """FedLESAM-S: SCAFFOLD's correction on FedLESAM's gradients.

    y <- y - lr (g(y~) - c_i + c) at each of K steps, from w to y_i, y~ = y + rho (w_old - w) / |w_old - w| as in
    `fedlesam`; then as `scaffold` c_i+ = c_i - c + (w - y_i) / (K lr), w+ = w + server_lr mean(y_i - w),
    c+ = c + (1/n) sum(c_i+ - c_i). Sends 2 d numbers down and 2 d up, clients keep c_i and w_old, the server c.
    Source: Fan et al. 2024; the correction has weight 1, where the published code has 0.1.
    """
    solver = parts.Lesam(parts.Rollback(parts.ScaffoldSolver(parts.local_sgd(sgd))), rho)
    return parts.server(exchange, solver, parts.controlled(server_lr))


def fedlesam_d(
    exchange: Exchange, /, *, rho: Radius = 0.01, penalty: PositiveFloat = 0.1, sgd: Sgd = Sgd()
) -> Algorithm:
    """FedLESAM-D: FedDyn's terms on FedLESAM's gradients.

    y <- y - lr (g(y~) + penalty (y - w) + penalty h_i) at every step, from w to y_i,
    y~ = y + rho (w_old - w) / |w_old - w| as in `fedlesam`; then as `feddyn` h_i+ = h_i + (y_i - w),
    h+ = h + (1/n) sum(y_i - w), w+ = mean(y_i) + h+.
    Sends d numbers down and d up (FedSynSAM's tables say twice that), clients keep h_i and w_old, the
    server h. Source: Fan et al. 2024.
    """
    solver = parts.Lesam(parts.Rollback(parts.FedDynSolver(parts.local_sgd(sgd), penalty)), rho)
    return parts.server(exchange, solver, parts.ConfirmingAggregation(inner=parts.DynamicAveraging()))
