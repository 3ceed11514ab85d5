"""Methods by gossip against the papers' recursions in numpy, round by round: see `recursions`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from recursions import (
    DIM,
    LINKS,
    STARTS,
    STREAMS,
    K,
    N,
    Rows,
    Slope,
    carried,
    gradient,
    metropolis,
    played,
    rate,
    sam,
    same,
    steps,
    undirected,
    vectors,
)

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network

W = metropolis()


def trained(x: Rows, round: int, slope: Slope = gradient, **options: Any) -> Rows:
    """Every node's local steps."""
    return np.stack([steps(i, x[i], rate(round), slope, **options) for i in range(N)])


@pytest.mark.parametrize(
    ("name", "params", "slope", "momentum", "power"),
    [
        ("dpsgd", {}, gradient, 0.0, 1),
        ("dfedavg", {}, gradient, 0.0, 1),
        ("dfedavgm", {"momentum": 0.7}, gradient, 0.7, 1),
        ("dfedsam", {"rho": 0.3}, sam(0.3), 0.0, 1),
        ("dfedsam_mgs", {"rho": 0.3, "gossip_steps": 3}, sam(0.3), 0.0, 3),
    ],
)
def test_methods_that_train_then_mix_go_by_their_recursion(
    name: str, params: dict[str, Any], slope: Slope, momentum: float, power: int
) -> None:
    """X+ = W^Q Z, Z after K steps of SGD, heavy-ball from 0 or SAM."""
    x = STARTS
    for round, states in enumerate(played(name, undirected(), **params)):
        x = np.linalg.matrix_power(W, power) @ trained(x, round, slope, momentum=momentum)
        same(vectors(states), x)


def test_lian_mixes_what_stood_before_the_steps() -> None:
    """X+ = W X + (Z - X)."""
    x = STARTS
    for round, states in enumerate(played("lian_dpsgd", undirected())):
        x = W @ x + (trained(x, round) - x)
        same(vectors(states), x)


@pytest.mark.parametrize(("name", "rho"), [("oledfl_sgd", 0.0), ("oledfl_sam", 0.3)])
def test_ole_begins_past_the_mixed_vector(name: str, rho: float) -> None:
    """Y_0 = X + beta (X - Z_prev), Z_prev = X^0 at first; X+ = W Z."""
    beta, x, z = 0.3, STARTS, STARTS
    params = {"rho": rho} if rho else {}
    for round, states in enumerate(played(name, undirected(), beta=beta, **params)):
        z = trained(x + beta * (x - z), round, sam(rho) if rho else gradient)
        x = W @ z
        same(vectors(states), x)


def test_quasi_global_momentum_follows_the_mixed_vector_at_the_rounds_rate() -> None:
    """V_0 = m^, X+ = W Z, m^ <- mu m^ + (1 - mu) (X - X+) / (lr_t K)."""
    beta, mu, x, m = 0.7, 0.6, STARTS, np.zeros((N, DIM))
    for round, states in enumerate(played("qg_dsgdm", undirected(), momentum=beta, mu=mu)):
        z = np.stack([steps(i, x[i], rate(round), momentum=beta, v=m[i]) for i in range(N)])
        before, x = x, W @ z
        m = mu * m + (1 - mu) * (before - x) / (rate(round) * K)
        same(vectors(states), x)
        same([state.local.momentum for state in states], m)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_of_dpsgd_goes_on_from_round_to_round(nesterov: bool) -> None:
    """V <- beta v + g, y <- y - lr v or y - lr (g + beta v), and X+ = W Z; v is not mixed and never 0 again."""
    x, v = STARTS, np.zeros((N, DIM))
    for round, states in enumerate(played("dpsgd", undirected(), momentum=0.7, nesterov=nesterov)):
        ends = [carried(i, x[i], rate(round), v=v[i], momentum=0.7, nesterov=nesterov) for i in range(N)]
        z, v = (np.stack(part) for part in zip(*ends, strict=True))
        x = W @ z
        same(vectors(states), x)
        same([state.local.velocity for state in states], v)


@pytest.mark.parametrize("buffer", ["outer_step", "round"])
@pytest.mark.parametrize("between", ["gossip", "train"])
def test_slow_momentum_divides_and_steps_by_the_rate_of_its_round(between: str, buffer: str) -> None:
    """U <- beta u + (x_0 - x_tau) / lr_t, x_0 <- x_0 - alpha lr_t u after the exact average of every third round.

    The base's own v is 0 with every x_0, or with every round.
    """
    every, alpha, beta, momentum, x, u = 3, 0.8, 0.6, 0.5, STARTS, np.zeros((N, DIM))
    all_links = [[i, j] for i in range(N) for j in range(i)]
    graphs = [*[[*map(list, LINKS)]] * (every - 1), all_links]
    network = Network(TOPOLOGIES["by_round"](N, STREAMS, rounds=graphs), partial(WEIGHTS["metropolis"]))
    options: dict[str, Any] = {"every": every, "alpha": alpha, "beta": beta, "between": between, "momentum": momentum}
    if buffer != "outer_step":
        options["buffer"] = buffer
    anchor, v = x, u
    for round, states in enumerate(played("slowmo", network, rounds=10, **options)):
        v = v if buffer == "outer_step" and round % every else np.zeros((N, DIM))
        ends = [carried(i, x[i], rate(round), v=v[i], momentum=momentum) for i in range(N)]
        z, v = (np.stack(part) for part in zip(*ends, strict=True))
        if (round + 1) % every:
            x = W @ z if between == "gossip" else z
        else:
            u = beta * u + (anchor - z.mean(0)) / rate(round)
            anchor = x = anchor - alpha * rate(round) * u
        same(vectors(states), x)


@pytest.mark.parametrize("order", ["train_first", "mix_first"])
@pytest.mark.parametrize("anneal_rounds", [4, 500])
def test_dispfl_averages_under_the_masks_of_training_and_lays_the_next_one_on(anneal_rounds: int, order: str) -> None:
    """Y M; prune the ceil(r_t n) smallest |y|, grow as many of the largest |gradient|; mean over those that have it.

    Mixing first, a round's model is y: the mean is what the next round begins with.
    """
    anneal = 0.6
    params: dict[str, Any] = {"density": 0.5, "layout": "uniform", "anneal": anneal, "anneal_rounds": anneal_rounds}
    params |= {"order": order} if order == "mix_first" else {}
    first = ALGORITHMS["dispfl"].build(Exchange(streams=STREAMS), **params).local.first_mask
    network = undirected()
    x, masks = STARTS, np.stack([first(((DIM,),), network.view(i, 0)).numpy() for i in range(N)])
    assert masks.sum(1).tolist() == [DIM // 2] * N
    adjacent = np.eye(N) + (W - np.diag(np.diag(W)) > 0)
    for round, states in enumerate(played("dispfl", network, **params)):
        y = np.stack([_masked_steps(i, x[i] * masks[i], masks[i], round) for i in range(N)])
        share = anneal / 2 * (1 + math.cos(math.pi * min(round / anneal_rounds, 1)))
        following = np.stack([_evolved(i, masks[i], y[i], share) for i in range(N)])
        count = adjacent @ masks
        x = np.where(count > 0, adjacent @ (y * masks) / np.maximum(count, 1), 0.0) * following
        masks = following
        same(vectors(states), y if order == "mix_first" else x)
        same([state.local.mask for state in states], masks)


def _masked_steps(i: int, y: Rows, mask: Rows, round: int) -> Rows:
    return steps(i, y, rate(round), lambda i, at: gradient(i, at) * mask)


def _evolved(i: int, mask: Rows, y: Rows, share: float) -> Rows:
    mask, change = mask.copy(), math.ceil(share * mask.sum())
    active = np.flatnonzero(mask)
    mask[active[np.argsort(np.abs(y[active]))[:change]]] = False
    idle = np.flatnonzero(~mask)
    mask[idle[np.argsort(-np.abs(gradient(i, y)[idle]))[:change]]] = True
    return mask


def test_the_options_of_sgd_go_where_the_listing_has_them() -> None:
    """The gradient is clipped, then the decay of the unperturbed point added, then the momentum."""
    clip, decay, momentum, rho, x = 0.8, 0.1, 0.5, 0.3, STARTS

    def slope(i: int, at: Rows) -> Rows:
        uphill = sam(rho)(i, at)
        return uphill * min(1.0, clip / float(np.sqrt((uphill**2).sum()))) + decay * at

    options: dict[str, Any] = {"clip_norm": clip, "weight_decay": decay, "momentum": momentum, "rho": rho}
    network = Network(TOPOLOGIES["edge_list"](N, STREAMS, edges=[*map(list, LINKS)]), partial(WEIGHTS["metropolis"]))
    for round, states in enumerate(played("dfedsgpsm", network, rounds=4, **options)):
        x = W @ trained(x, round, slope, momentum=momentum)
        same(vectors(states), x)
