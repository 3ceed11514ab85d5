"""Learning methods by push-sum on one-way links, one function each: the paper's parts with the paper's defaults."""

from __future__ import annotations

from dataclasses import replace

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import AnySgd, Exchange, Momentum, Radius, Sgd
from netdfl.algorithms.late import parts
from netdfl.core.units import NonNegativeInt, PositiveFloat, PositiveInt


def sgp(
    exchange: Exchange, /, *, momentum: Momentum = 0.0, nesterov: bool = False, sgd: AnySgd = AnySgd(local_epochs=1)
) -> Algorithm:
    """SGP as DFedSGPSM's experiments run it: one local epoch at z = x / w, then push-sum.

    x <- x - lr g(x / w) at every step, w as it is, then x_i+ = sum_j P_ij x_j and w_i+ = sum_j P_ij w_j.
    Sends d + 1 numbers to each out-neighbor, keeps w. Those experiments have no momentum. Assran's are
    `local_steps: 1, momentum: 0.9, nesterov: true`: v <- momentum v + g(x / w), x <- x - lr (g(x / w) + momentum v),
    v kept from round to round and never mixed; without `nesterov` x <- x - lr v. `dfedsgpm` is the method whose v
    begins anew every round. Source: Assran et al. 2019, DFedSGPSM Table 1.
    """
    local = parts.local_sgd(sgd, momentum=momentum, nesterov=nesterov)
    return parts.push_sum(exchange, parts.keeping_momentum(local))


def osgp(exchange: Exchange, /, *, sgd: AnySgd = AnySgd()) -> Algorithm:
    """OSGP as DFedSGPSM's experiments run it: several local epochs at z = x / w, then push-sum.

    x <- x - lr g(x / w) at every step, w as it is, then x_i+ = sum_j P_ij x_j and w_i+ = sum_j P_ij w_j.
    Sends d + 1 numbers to each out-neighbor, keeps w. The name is that paper's: nothing overlaps here.
    Source: DFedSGPSM Table 1.
    """
    return parts.push_sum(exchange, parts.local_sgd(sgd))


def dfedsgpm(exchange: Exchange, /, *, momentum: Momentum = 0.9, sgd: Sgd = Sgd(clip_norm=10.0)) -> Algorithm:
    """DFedSGPM: OSGP with heavy-ball momentum, started anew every round.

    v <- momentum v + g(x / w), x <- x - lr v at every step, v = 0 before the first, w as it is; then push-sum,
    x_i+ = sum_j P_ij x_j and w_i+ = sum_j P_ij w_j. Sends d + 1 numbers to each out-neighbor, keeps w. Without
    clipping it can diverge where w gets small. Source: DFedSGPSM Table 1.
    """
    return parts.push_sum(exchange, parts.local_sgd(sgd, momentum=momentum))


def dfedsgpsm(
    exchange: Exchange, /, *, rho: Radius = 0.1, momentum: Momentum = 0.9, sgd: Sgd = Sgd(clip_norm=10.0)
) -> Algorithm:
    """DFedSGPSM: DFedSGPM with SAM's gradient, taken `rho` uphill of z on the same minibatch.

    z = x / w, z~ = z + rho g(z) / |g(z)|, v <- momentum v + g(z~), x <- x - lr v at every step, v = 0 before the
    first, w as it is; then push-sum, x_i+ = sum_j P_ij x_j and w_i+ = sum_j P_ij w_j. Sends d + 1 numbers to
    each out-neighbor, keeps w. Without clipping it can diverge where w gets small.
    Source: DFedSGPSM Alg. 1.
    """
    return parts.push_sum(exchange, parts.local_sgd(sgd, rho=rho, momentum=momentum))


def dfedsgpsm_s(
    exchange: Exchange,
    /,
    *,
    rho: Radius = 0.1,
    momentum: Momentum = 0.9,
    neighbors: PositiveInt = 4,
    temperature: PositiveFloat = 1.0,
    max_age: NonNegativeInt = 10,
    sgd: Sgd = Sgd(clip_norm=10.0),
) -> Algorithm:
    """DFedSGPSM-S: DFedSGPSM whose nodes send to neighbors whose loss differs most from their own.

    Steps and push-sum as `dfedsgpsm`. p(i -> j) = exp(|f_i - f_j| / temperature) / sum_k exp(|f_i - f_k| / temperature)
    over the out-neighbors, `neighbors` of them without replacement; P_ji of the others is 0, and the kept and the sent
    shares sum to 1. Losses spread on the messages; each is compared with the node's own loss of the same round, and a
    loss that is more than `max_age` rounds old counts as unknown. Sends d + 1 numbers and the table of known losses
    (node, round, loss) to each chosen node, keeps w, that table and its own losses. Source: DFedSGPSM Alg. 1 and Eq. 2;
    temperature 1 and 10 neighbors.
    """
    plain = dfedsgpsm(exchange, rho=rho, momentum=momentum, sgd=sgd)
    mixing = parts.ByLoss(
        inner=plain.mixing,
        neighbors=neighbors,
        temperature=temperature,
        max_age=max_age,
        streams=exchange.streams,
    )
    return replace(plain, mixing=mixing)
