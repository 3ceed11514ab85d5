"""The papers' listings on quadratics, in numpy and without netdfl: where a method stands still.

Node i has f_i(x) = 1/2 sum_k h_ik (x_k - c_ik)^2. All start at 0, the rate is constant and a round has two steps unless
a method says otherwise. A point is found by iterating the listing until it stands still, or for `ORBIT` rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Slope = Callable[[int, Rows], Rows]

N, DIM, LR, K = 6, 8, 0.2, 2
ARCS = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [0, 2], [0, 3], [3, 1]]
ORBIT = 40
STILL = 1e-14


@dataclass(frozen=True)
class Quadratics:
    """Centers c and curvatures h, each of shape (N, DIM)."""

    centers: Rows
    curvatures: Rows

    def slope(self, i: int, at: Rows) -> Rows:
        """Node i's gradient."""
        return self.curvatures[i] * (at - self.centers[i])

    def sam(self, rho: float) -> Slope:
        """The gradient `rho` uphill."""
        return lambda i, at: self.slope(i, at + rho * _unit(self.slope(i, at)))

    @property
    def optimum(self) -> Rows:
        """The minimum of the mean."""
        best: Rows = (self.curvatures * self.centers).sum(0) / self.curvatures.sum(0)
        return best


Point = Callable[[Quadratics], Rows]


def _unit(vector: Rows) -> Rows:
    return vector / (np.sqrt((vector**2).sum()) + 1e-12)


def _steps(y: Rows, slope: Callable[[Rows], Rows], k: int = K, momentum: float = 0.0, v: Rows | float = 0.0) -> Rows:
    for _ in range(k):
        v = momentum * v + slope(y)
        y = y - LR * v
    return y


def _settled(step: Callable[[Any], Any], state: Any) -> Any:
    """The state that `step` leaves as it is."""
    for _ in range(20_000):
        after = step(state)
        if max(float(np.abs(a - b).max()) for a, b in zip(after, state, strict=True)) < STILL:
            return after
        state = after
    raise AssertionError("the recursion does not settle")


def ring() -> Rows:
    return sum((np.roll(np.eye(N), shift, 1) for shift in (-1, 0, 1)), np.zeros((N, N))) / 3


def _columns() -> Rows:
    shares = np.eye(N)
    for src, dst in ARCS:
        shares[dst, src] = 1.0
    return shares / shares.sum(0)


def _each(train: Callable[[int, Rows], Rows], x: Rows) -> Rows:
    return np.stack([train(i, x[i]) for i in range(N)])


def gossip(
    *, k: int = K, momentum: float = 0.0, rho: float = 0.0, matrix: Callable[[], Rows] = ring, lian: bool = False
) -> Point:
    """X+ = W T(X), or W X + T(X) - X."""

    def point(q: Quadratics) -> Rows:
        slope = q.sam(rho) if rho else q.slope
        w = matrix()

        def step(state: tuple[Rows]) -> tuple[Rows]:
            (x,) = state
            z = _each(lambda i, y: _steps(y, lambda at: slope(i, at), k, momentum), x)
            return (w @ x + z - x if lian else w @ z,)

        rows: Rows = _settled(step, (np.zeros((N, DIM)),))[0]
        return rows

    return point


def ole(beta: float, rho: float = 0.0) -> Point:
    """Y = x + beta (x - z), z+ = T(y), X+ = W Z."""

    def point(q: Quadratics) -> Rows:
        slope = q.sam(rho) if rho else q.slope

        def step(state: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
            x, z = state
            z = _each(lambda i, y: _steps(y, lambda at: slope(i, at)), x + beta * (x - z))
            return ring() @ z, z

        rows: Rows = _settled(step, (np.zeros((N, DIM)), np.zeros((N, DIM))))[0]
        return rows

    return point


def quasi_global(beta: float, mu: float) -> Point:
    """V = beta m + g, X+ = W (X - lr V), m+ = mu m + (1 - mu) (x - x+) / lr."""

    def point(q: Quadratics) -> Rows:
        def step(state: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
            x, m = state
            after = ring() @ (x - LR * (beta * m + _each(q.slope, x)))
            return after, mu * m + (1 - mu) * (x - after) / LR

        rows: Rows = _settled(step, (np.zeros((N, DIM)), np.zeros((N, DIM))))[0]
        return rows

    return point


def push_sum(*, k: int = K, momentum: float = 0.0, rho: float = 0.0, kind: str = "after") -> Point:
    """Steps at z = x / w, then X+ = P X, w+ = P w; `early`: P X - lr g(z); `frozen`: all gradients at one z."""

    def point(q: Quadratics) -> Rows:
        slope, p = q.sam(rho) if rho else q.slope, _columns()

        def trained(x: Rows, w: Rows) -> Rows:
            if kind == "after":
                return np.stack([_steps(x[i], lambda y, i=i: slope(i, y / w[i]), k, momentum) for i in range(N)])
            return x - (1 if kind == "early" else k) * LR * _each(q.slope, x / w[:, None])

        def step(state: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
            x, w = state
            z = trained(x, w)
            return (p @ x + z - x if kind == "early" else p @ z), p @ w

        x, w = _settled(step, (np.zeros((N, DIM)), np.ones(N)))
        rows: Rows = x / w[:, None]
        return rows

    return point


def average(*, k: int = K, rho: float = 0.0) -> Point:
    """W+ = mean of T_i(w)."""

    def point(q: Quadratics) -> Rows:
        slope = q.sam(rho) if rho else q.slope

        def step(state: tuple[Rows]) -> tuple[Rows]:
            (w,) = state
            return (np.mean([_steps(w, lambda y, i=i: slope(i, y), k) for i in range(N)], axis=0),)

        row: Rows = _settled(step, (np.zeros(DIM),))[0]
        return row

    return point


def choco(gamma: float, times: int, kept: int) -> Point:
    """`times` exchanges a round: X^ <- X^ + top(X - X^), X <- X + gamma (W - I) X^; with several X^ never rests."""

    def top(row: Rows) -> Rows:
        return np.where(np.abs(row) >= np.sort(np.abs(row))[-kept], row, 0.0)

    def point(q: Quadratics) -> Rows:
        x, known = np.zeros((N, DIM)), np.zeros((N, DIM))
        for _ in range(ORBIT):
            x = _each(lambda i, y: _steps(y, lambda at: q.slope(i, at)), x)
            for _ in range(times):
                known = known + np.stack([top(row) for row in x - known])
                x = x + gamma * (ring() - np.eye(N)) @ known
        return x

    return point


def momentum_blended(rho: float, alpha: float) -> Point:
    """MoFedSAM: y <- y - lr (alpha g~ + (1 - alpha) m), m+ = mean (w - y) / (K lr)."""

    def point(q: Quadratics) -> Rows:
        slope = q.sam(rho)

        def step(state: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
            w, m = state
            y = [_steps(w, lambda at, i=i: alpha * slope(i, at) + (1 - alpha) * m) for i in range(N)]
            after = np.mean(y, axis=0)
            return after, (w - after) / (K * LR)

        row: Rows = _settled(step, (np.zeros(DIM), np.zeros(DIM)))[0]
        return row

    return point


def _lesam(w: Rows, old: Rows | None, rho: float) -> Rows | float:
    return 0.0 if old is None else rho * _unit(old - w)


def scaffold(*, rho: float = 0.0, lesam: float = 0.0) -> Point:
    """Y <- y - lr (g - c_i + c), c_i+ = c_i - c + (w - y) / (K lr), c the mean of the c_i."""

    def point(q: Quadratics) -> Rows:
        slope = q.sam(rho) if rho else q.slope

        def step(w: Rows, own: Rows, old: Rows | None) -> tuple[Rows, Rows]:
            c, up = own.mean(0), _lesam(w, old, lesam)
            y = np.stack([_steps(w, lambda at, i=i: slope(i, at + up) - own[i] + c) for i in range(N)])
            return y.mean(0), own - c + (w - y) / (K * LR)

        return _orbit(step) if lesam else _alone(step)

    return point


def dynamic(penalty: float, *, lesam: float = 0.0) -> Point:
    """Y <- y - lr (g + penalty (y - w + h_i)), h_i+ = h_i + y - w, w+ = mean y + mean h+."""

    def point(q: Quadratics) -> Rows:
        def step(w: Rows, own: Rows, old: Rows | None) -> tuple[Rows, Rows]:
            up = _lesam(w, old, lesam)
            slopes = [lambda at, i=i: q.slope(i, at + up) + penalty * (at - w + own[i]) for i in range(N)]
            y = np.stack([_steps(w, slope) for slope in slopes])
            own = own + y - w
            return y.mean(0) + own.mean(0), own

        return _orbit(step) if lesam else _alone(step)

    return point


def smoo(rho: float, penalty: float) -> Point:
    """FedDyn at y + s_k, s_k = rho unit(g - mu_i - s), mu_i <- mu_i + s_k - s, s+ = rho unit(mean mu_i)."""

    def point(q: Quadratics) -> Rows:
        w, h, mu, s = np.zeros(DIM), np.zeros((N, DIM)), np.zeros((N, DIM)), np.zeros(DIM)
        for _ in range(ORBIT):
            y = np.tile(w, (N, 1))
            for i in range(N):
                for _ in range(K):
                    here = rho * _unit(q.slope(i, y[i]) - mu[i] - s)
                    mu[i] = mu[i] + here - s
                    y[i] = y[i] - LR * (q.slope(i, y[i] + here) + penalty * (y[i] - w + h[i]))
            h = h + y - w
            w, s = y.mean(0) + h.mean(0), rho * _unit(mu.mean(0))
        return w

    return point


def lesam(rho: float) -> Point:
    """FedAvg with gradients at y + rho unit(w_old - w)."""

    def point(q: Quadratics) -> Rows:
        def step(w: Rows, own: Rows, old: Rows | None) -> tuple[Rows, Rows]:
            up = _lesam(w, old, rho)
            return np.mean([_steps(w, lambda at, i=i: q.slope(i, at + up)) for i in range(N)], axis=0), own

        return _orbit(step)

    return point


def _orbit(step: Callable[[Rows, Rows, Rows | None], tuple[Rows, Rows]]) -> Rows:
    """The server's model after `ORBIT` rounds."""
    w, own, old = np.zeros(DIM), np.zeros((N, DIM)), None
    for _ in range(ORBIT):
        (w, own), old = step(w, own, old), w
    return w


def _alone(step: Callable[[Rows, Rows, Rows | None], tuple[Rows, Rows]]) -> Rows:
    row: Rows = _settled(lambda state: step(*state, None), (np.zeros(DIM), np.zeros((N, DIM))))[0]
    return row


def best(q: Quadratics) -> Rows:
    """The optimum."""
    return q.optimum


def lazy(gamma: float) -> Callable[[], Rows]:
    return lambda: np.eye(N) + gamma * (ring() - np.eye(N))
