"""Distillation against its listing in numpy: every gradient of quadratics is known, so each iteration is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recursions import CURVATURES, DIM, STARTS, STREAMS, K, N, Rows, gradient, played, rate, same, star, steps, unit

from netdfl.algorithms.base import NodeState
from netdfl.training.guided import INPUTS

WARMUP, ITERATIONS, PER_CLASS, INNER, ROUNDS = 4, 6, 3, 2, 7
H = CURVATURES[0]  # the server's, by which it distils and tunes
COMMON: dict[str, Any] = {
    "warmup_rounds": WARMUP,
    "per_class": PER_CLASS,
    "distil_iterations": ITERATIONS,
    "distil_steps": INNER,
}


class Distilled:
    """X and a while they learn; the losses' gradients for `INNER` steps from a model to a later one."""

    def __init__(self, a: float) -> None:
        self.rng = STREAMS.rng("distil", WARMUP - 1)
        self.x: Rows = self.rng.standard_normal((PER_CLASS, DIM))
        self.a = a

    def slopes(self, start: Rows, target: Rows) -> tuple[Rows, float]:
        """dL/dX and dL/da of L = |w^ - w*|^2 / |w - w*|^2, w^ = m + (1 - a h)^s (w - m), m the mean of X."""
        m, left = self.x.mean(0), (1 - self.a * H) ** INNER
        missed = 2 * (m + left * (start - m) - target) / ((start - target) ** 2).sum()
        by_rate = -INNER * H * (1 - self.a * H) ** (INNER - 1) * (start - m)
        return np.tile(missed * (1 - left) / PER_CLASS, (PER_CLASS, 1)), float((missed * by_rate).sum())


class Adam:
    """Kingma and Ba's steps, by its usual constants."""

    def __init__(self, lr: float) -> None:
        self.lr, self.t, self.m, self.v = lr, 0, np.float64(0), np.float64(0)

    def step(self, at: Any, slope: Any) -> Any:
        self.t += 1
        self.m, self.v = 0.9 * self.m + 0.1 * slope, 0.999 * self.v + 0.001 * slope**2
        return at - self.lr * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


def models(states: list[list[NodeState]]) -> list[Rows]:
    """W^0 .. w^R at the server."""
    return [STARTS[0], *(states[round][N].x.numpy() for round in range(WARMUP))]


def test_fedsynsam_goes_by_its_listing() -> None:
    """Targets are s rounds on; then y~ = y + rho u(beta g_i + (1 - beta) g_syn), y <- y - lr g_i(y~)."""
    beta, rho, a, input_lr, rate_lr = 0.4, 0.25, 0.3, 2.0, 0.02
    learning: dict[str, Any] = {"distil_optimizer": "sgd", "input_lr": input_lr, "rate": a, "rate_lr": rate_lr}
    states = played("fedsynsam", star(), rounds=ROUNDS, rho=rho, beta=beta, synthetic_batch=9, **COMMON, **learning)
    made, trajectory = Distilled(a), models(states)
    for _ in range(ITERATIONS):
        r = int(made.rng.integers(WARMUP + 1 - INNER))
        by_input, by_rate = made.slopes(trajectory[r], trajectory[r + INNER])
        made.x, made.a = made.x - input_lr * by_input, made.a - rate_lr * by_rate
    same(states[WARMUP - 1][N].mixing.synthetic[INPUTS], made.x)
    w = trajectory[-1]
    for round in range(WARMUP, ROUNDS):
        w = np.mean([guided(i, w, round, beta, rho, made.x.mean(0)) for i in range(N)], axis=0)
        same(states[round][N].x, w)


def guided(i: int, w: Rows, round: int, beta: float, rho: float, center: Rows) -> Rows:
    """K steps whose ascent is part the synthetic examples' gradient."""

    def slope(i: int, at: Rows) -> Rows:
        ascent = beta * gradient(i, at) + (1 - beta) * CURVATURES[i] * (at - center)
        return gradient(i, at + rho * unit(ascent))

    return steps(i, w, rate(round), slope)


@pytest.mark.parametrize("name", ["dynafed", "dynafed_synonly"])
def test_dynafed_goes_by_its_listing(name: str) -> None:
    """Targets are means of models 1 to `gap` rounds on; then Adam on D_syn after every average, or in its place."""
    a, input_lr, rate_lr, gap, tuning_lr = 0.3, 0.5, 0.02, 3, 0.05
    learning: dict[str, Any] = {"input_lr": input_lr, "rate": a, "rate_lr": rate_lr, "distil_gap": gap, "augment": ()}
    states = played(name, star(), rounds=ROUNDS, tuning_steps=K, tuning_lr=tuning_lr, **COMMON, **learning)
    made, trajectory = Distilled(a), models(states)
    inputs, learned_rate = Adam(input_lr), Adam(rate_lr)
    for _ in range(ITERATIONS):
        r = int(made.rng.integers(WARMUP + 1 - gap))
        count = int(made.rng.integers(2, gap + 1))
        later = made.rng.integers(1, gap + 1, size=count)
        target = np.mean([trajectory[r + k] for k in later], axis=0)
        by_input, by_rate = made.slopes(trajectory[r], target)
        made.x, made.a = inputs.step(made.x, by_input), learned_rate.step(made.a, by_rate)
    same(states[WARMUP - 1][N].mixing.synthetic[INPUTS], made.x)
    w, center = trajectory[-1], made.x.mean(0)
    for round in range(WARMUP, ROUNDS):
        if name == "dynafed":
            w = np.mean([steps(i, w, rate(round)) for i in range(N)], axis=0)
        tuning = Adam(tuning_lr)
        for _ in range(K):
            w = tuning.step(w, H * (w - center))
        same(states[round][N].x, w)
