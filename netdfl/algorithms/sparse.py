"""Methods whose nodes train sparse models, one function each."""

from __future__ import annotations

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.late import parts
from netdfl.algorithms.parameters import Fraction, Layout, MixOrder, Regrow, Sgd
from netdfl.core.units import PositiveInt


def dispfl(
    exchange: Exchange,
    /,
    *,
    density: Fraction = 0.5,
    layout: Layout = "erk",
    anneal: Fraction = 0.5,
    anneal_rounds: PositiveInt = 500,
    regrow: Regrow = "gradient",
    order: MixOrder = "train_first",
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """DisPFL: each node trains under a sparse mask of its own, pruned and regrown every round.

    y <- y - lr g(y) M_i at every step, then in each layer the next mask M_i+ gives up a share r_t of its coordinates,
    those of the smallest |y|, for as many others (`regrow`), r_t = (anneal / 2) (1 + cos(pi t / anneal_rounds)) and 0
    from `anneal_rounds` on; then x_i = (sum_j y_j M_j / sum_j M_j) M_i+ over the node and its neighbors. Sends the
    nonzero coordinates and d bits to each neighbor, keeps M_i+. The paper's round averages before it trains: the same
    sequence, but a round's model, and so the last, is the y_i of its node alone, what the paper calls personal:
    `order: mix_first`, which keeps x_i too. `train_first` records x_i, as every other method here does, so that figures
    compare. Source: Dai et al. 2022.
    """
    if exchange.compressor is not None:
        raise ValueError("dispfl sends sparse vectors already; remove compression")
    local = parts.local_sgd(sgd)
    solver = parts.Masked(
        sgd=local,
        density=density,
        layout=layout,
        anneal=anneal,
        anneal_rounds=anneal_rounds,
        regrow=regrow,
        streams=exchange.streams,
    )
    return parts.gossip(exchange, solver, mixing=parts.MaskedAverage(for_next=order == "mix_first"))
