"""Methods that were published with compressed messages, one function each.

They use the compressor and the step size `gamma` of the scenario's `compression`. Without one they send uncompressed
vectors, and reduce to the methods that they extend: `choco_sgd` and `deepsqueeze` to D-PSGD.
"""

from __future__ import annotations

from typing import Literal

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import AnySgd, Exchange, Momentum, Sgd
from netdfl.algorithms.late import parts
from netdfl.core.units import PositiveInt


def choco_sgd(exchange: Exchange, /, *, sgd: AnySgd = AnySgd(local_epochs=1, local_steps=1)) -> Algorithm:
    """CHOCO-SGD: one step of SGD, then x^ <- x^ + C(x - x^) and x <- x + gamma sum_j W_ij (x^_j - x^_i).

    The step is x <- x - lr g(x). Static undirected graphs. Sends one compressed vector to each neighbor, keeps
    its own reference x^_i and a copy of each neighbor's. Source: Koloskova, Stich, Jaggi 2019.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd), mixing=parts.choco(exchange))


def deepsqueeze(exchange: Exchange, /, *, sgd: AnySgd = AnySgd(local_epochs=1, local_steps=1)) -> Algorithm:
    """DeepSqueeze: one step of SGD, then c = C(x + e), e <- x + e - c, x <- x + gamma (sum_j W_ij c_j - c).

    The step is x <- x - lr g(x). Graphs may change every round. Sends one compressed vector to each neighbor,
    keeps e.
    Source: Tang et al. 2019.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd), mixing=parts.deepsqueeze(exchange))


def delicoco(
    exchange: Exchange, /, *, gossip_steps: PositiveInt = 4, sgd: AnySgd = AnySgd(local_epochs=1, local_steps=1)
) -> Algorithm:
    """DeLi-CoCo: one step of SGD, then Q exchanges of CHOCO.

    x <- x - lr g(x); then Q = `gossip_steps` times x^ <- x^ + C(x - x^), x <- x + gamma sum_j W_ij (x^_j - x^_i).
    Static undirected graphs. Sends Q compressed vectors to each neighbor, keeps what `choco_sgd` keeps: x^_i and
    a copy of each neighbor's. Q = 1 is `choco_sgd`. Source: Hashemi et al. 2022.
    """
    return parts.gossip(exchange, parts.local_sgd(sgd), mixing=parts.choco(exchange, steps=gossip_steps))


def qdfedavgm(
    exchange: Exchange,
    /,
    *,
    momentum: Momentum = 0.9,
    form: Literal["reference", "literal"] = "reference",
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """Quantized DFedAvgM: local SGD with momentum from x to z, then gossip of quantized differences.

    v <- momentum v + g(y), y <- y - lr v at every step, v = 0 before the first, from x to z. `reference`: CHOCO with
    gamma 1 unless given, x^ <- x^ + C(z - x^), x <- z + gamma sum_j W_ij (x^_j - x^_i); static undirected graphs.
    `literal`: x <- x + sum_j W_ij C(z_j - x_j), Eq. 7 as printed; the initial differences between nodes then never
    shrink. Sends one compressed vector to each neighbor; `reference` keeps x^_i and a copy of each neighbor's,
    `literal` nothing. Source: Sun, Li, Wang 2022.
    """
    local = parts.local_sgd(sgd, momentum=momentum)
    if form == "literal":
        return parts.gossip(exchange, local, mixing=parts.literal(exchange))
    gamma = 1.0 if exchange.gamma == "auto" else exchange.gamma
    return parts.gossip(exchange, local, mixing=parts.choco(exchange, gamma=gamma))
