"""Methods with a server against the papers' recursions in numpy; three of five clients take part in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recursions import (
    DIM,
    SAMPLES,
    STARTS,
    STREAMS,
    K,
    N,
    Rows,
    Slope,
    gradient,
    played,
    rate,
    sam,
    same,
    star,
    steps,
    unit,
)

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.sparsify import TopK

ROUNDS, SERVER_LR, RHO, PENALTY = 9, 0.7, 0.3, 0.2
ZEROS = np.zeros((N, DIM))


def rounds_of(name: str, **params: Any) -> list[tuple[int, tuple[int, ...], list[NodeState]]]:
    """(round, who takes part, every node's state after it)."""
    network = star(participation=0.6)
    states_of = played(name, network, rounds=ROUNDS, **params)
    taking_part = [network.view(N, round).out_neighbors for round in range(ROUNDS)]
    assert {i for clients in taking_part for i in clients} == set(range(N))
    return list(zip(range(ROUNDS), taking_part, states_of, strict=True))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(("name", "slope"), [("fedavg", gradient), ("fedsam", sam(RHO))])
def test_a_server_averages_the_changes_of_its_clients(
    name: str, slope: Slope, weighting: str, compressed: bool
) -> None:
    """W+ = w + server_lr sum n_i (y_i - w) / sum n_i, n_i = 1 for all or the clients' numbers of examples."""
    params: dict[str, Any] = {"rho": RHO} if name == "fedsam" else {}
    if weighting == "samples":
        params |= {"weighting": weighting}
    if compressed:
        params |= {"exchange": Exchange(compressor=TopK(0.0, 2), scheme="plain", streams=STREAMS)}
    w = STARTS[0]
    for round, clients, states in rounds_of(name, server_lr=SERVER_LR, **params):
        counts = SAMPLES[list(clients)] if weighting == "samples" else np.ones(len(clients))
        moves = np.stack([steps(i, w, rate(round), slope) - w for i in clients])
        moves = np.stack([top_two(move) for move in moves]) if compressed else moves
        w = w + SERVER_LR * (counts @ moves) / counts.sum()
        same(states[N].x, w)


def test_clients_without_examples_leave_the_model_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recursions.SAMPLES", np.zeros(N))
    assert all((states[N].x.numpy() == STARTS[0]).all() for _, _, states in rounds_of("fedavg", weighting="samples"))


def test_mofedsam_divides_by_the_rate_of_the_round_that_it_was_made_in() -> None:
    """Y <- y - lr_t (alpha g~ + (1 - alpha) m), m+ = mean(w - y_i) / (K lr_t)."""
    alpha, w, m = 0.3, STARTS[0], np.zeros(DIM)
    for round, clients, states in rounds_of("mofedsam", server_lr=SERVER_LR, rho=RHO, alpha=alpha):
        blended = corrected(lambda i, at: alpha * sam(RHO)(i, at), (1 - alpha) * m)
        moved = np.mean([steps(i, w, rate(round), blended) - w for i in clients], axis=0)
        w, m = w + SERVER_LR * moved, -moved / (K * rate(round))
        same(states[N].x, w)
        same(states[N].mixing.vector, m)


def corrected(slope: Slope, correction: Rows) -> Slope:
    """A gradient with a constant added."""
    return lambda i, at: slope(i, at) + correction


@pytest.mark.parametrize("name", ["scaffold", "fedgamma", "fedlesam_s"])
def test_controls_correct_every_step_and_follow_it(name: str) -> None:
    """Y <- y - lr (g~ - c_i + c), c_i+ = c_i - c + (w - y) / (K lr), c+ = c + (1/n) sum(c_i+ - c_i)."""
    w, c, own, previous = STARTS[0], np.zeros(DIM), ZEROS.copy(), dict[int, Rows]()
    params = {} if name == "scaffold" else {"rho": RHO}
    for round, clients, states in rounds_of(name, server_lr=SERVER_LR, **params):
        moves, changes = [], []
        for i in clients:
            slope = {"scaffold": gradient, "fedgamma": sam(RHO), "fedlesam_s": shifted(previous.get(i), w)}[name]
            y = steps(i, w, rate(round), corrected(slope, c - own[i]))
            changes.append((w - y) / (K * rate(round)) - c)
            moves.append(y - w)
            previous[i] = w
        own[list(clients)] += changes
        w, c = w + SERVER_LR * np.mean(moves, axis=0), c + np.sum(changes, axis=0) / N
        same(states[N].x, w)
        same(states[N].mixing.inner.vector, c)
        same(c, own.mean(0))


def shifted(previous: Rows | None, w: Rows) -> Slope:
    """The gradient at y + rho (w_old - w) / |w_old - w|; at y where there is no w_old."""
    return gradient if previous is None else lambda i, at: gradient(i, at + RHO * unit(previous - w))


@pytest.mark.parametrize("name", ["feddyn", "fedlesam_d"])
def test_dynamic_regularization_pulls_to_the_model_and_remembers_the_way(name: str) -> None:
    """Y <- y - lr (g + lambda (y - w) + lambda h_i), h_i += y - w, w+ = mean y + (1/n) sum h_i."""
    w, h, previous = STARTS[0], ZEROS.copy(), dict[int, Rows]()
    params = {"rho": RHO} if name == "fedlesam_d" else {}
    for round, clients, states in rounds_of(name, penalty=PENALTY, **params):
        ends = []
        for i in clients:
            slope = shifted(previous.get(i), w) if name == "fedlesam_d" else gradient
            ends.append(steps(i, w, rate(round), drawn(slope, w, h[i])))
            previous[i] = w
        h[list(clients)] += np.stack(ends) - w
        w = np.mean(ends, axis=0) + h.mean(0)
        same(states[N].x, w)


def drawn(slope: Slope, w: Rows, h: Rows) -> Slope:
    """A gradient with FedDyn's terms."""
    return lambda i, at: slope(i, at) + PENALTY * (at - w) + PENALTY * h


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("form", ["code", "paper"])
def test_fedsmoo_goes_by_its_listing(form: str, compressed: bool) -> None:
    """s_k = rho u(g - mu_i - s), mu_i += s_k - s in every step, then FedDyn's at y + s_k; s+ = rho u(mean of duals).

    The duals are mu_i as in its code, or mu_i - s_K as in the paper. Compressed, what the server knows of them grows
    by C(change), and mu_i loses what was left out; h_i adds what the server reads of y - w.
    """
    params: dict[str, Any] = {"rho": RHO, "penalty": PENALTY} | ({"form": form} if form == "paper" else {})
    if compressed:
        how: dict[str, Any] = {"compressor": TopK(0.0, 2), "scheme": "plain", "extras": "compressed"}
        params["exchange"] = Exchange(gamma=1.0, streams=STREAMS, **how)
    say = top_two if compressed else lambda vector: vector
    w, shared, h, dual, known = STARTS[0], np.zeros(DIM), ZEROS.copy(), ZEROS.copy(), ZEROS.copy()
    for round, clients, states in rounds_of("fedsmoo", **params):
        ends = []
        for i in clients:
            y = w
            for _ in range(K):
                own = RHO * unit(gradient(i, y) - dual[i] - shared)
                dual[i] += own - shared
                y = y - rate(round) * (gradient(i, y + own) + PENALTY * (y - w) + PENALTY * h[i])
            ends.append(w + say(y - w))
            change = dual[i] - (own if form == "paper" else 0) - known[i]
            known[i] += say(change)
            dual[i] -= change - say(change)
        h[list(clients)] += np.stack(ends) - w
        w, shared = np.mean(ends, axis=0) + h.mean(0), RHO * unit(known[list(clients)].mean(0))
        same(states[N].x, w)
        kept = states[N].mixing.inner
        same((kept.inner if compressed else kept).shared, shared)


def test_fedlesam_ascends_along_the_last_move_of_the_model() -> None:
    """The gradient at y + rho (w_old - w) / |w_old - w|, w_old of the client's own last active round."""
    w, previous = STARTS[0], dict[int, Rows]()
    for round, clients, states in rounds_of("fedlesam", server_lr=SERVER_LR, rho=RHO):
        ends = [steps(i, w, rate(round), shifted(previous.get(i), w)) for i in clients]
        previous |= dict.fromkeys(clients, w)
        w = w + SERVER_LR * (np.mean(ends, axis=0) - w)
        same(states[N].x, w)


def test_compressed_controls_are_added_at_both_ends_as_they_were_said() -> None:
    """C(y - w) and C(c_i+ - c_i) go up; c_i and c both add the second."""
    exchange = Exchange(compressor=TopK(0.0, 2), scheme="plain", extras="compressed", gamma=1.0, streams=STREAMS)
    w, c, own = STARTS[0], np.zeros(DIM), ZEROS.copy()
    for round, clients, states in rounds_of("scaffold", exchange=exchange):
        said, changes = [], []
        for i in clients:
            y = steps(i, w, rate(round), corrected(gradient, c - own[i]))
            said.append(top_two(y - w))
            changes.append(top_two((w - y) / (K * rate(round)) - c))
        own[list(clients)] += changes
        w, c = w + np.mean(said, axis=0), c + np.sum(changes, axis=0) / N
        same(states[N].x, w)
        same(c, own.mean(0))


def top_two(vector: Rows) -> Rows:
    """All but the two largest magnitudes made 0."""
    return np.where(np.abs(vector) >= np.sort(np.abs(vector))[-2], vector, 0.0)
