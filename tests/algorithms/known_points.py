"""Where every method settles on quadratics that disagree, computed in numpy, and a scenario that shall get there.

Node i has f_i(x) = 1/2 sum_k h_ik (x_k - c_ik)^2; curvatures and centers differ, all start at 0, the rate is constant
and a round has two steps unless a method says otherwise. So most methods have a fixed point that is not the optimum
sum h_i c_i / sum h_i: nodes drift between two averages. A point is found by iterating the paper's listing, written out
here without netdfl's code, until it stands still. Nothing but the centers and curvatures is netdfl's.

Some have no point of their own: those that choose partners at random or compress whole models come near one as far as
`off` says. FedLESAM's and FedSMOO's ascent of constant length and the references of several exchanges a round need not
come to rest, so these are compared with the listing after as many rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.fleet.build import Blueprint
from netdfl.fleet.evaluation import read_snapshot
from netdfl.scenario.model.schema import Scenario

Rows = NDArray[np.float64]
Slope = Callable[[int, Rows], Rows]

N, DIM, LR, K, ROUNDS = 6, 8, 0.2, 2, 120
ARCS = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [0, 2], [0, 3], [3, 1]]
CURVATURES = [0.6, 1.0, 2.0, 1.5, 0.8, 1.2]
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


@dataclass(frozen=True, kw_only=True)
class Known:
    """A method's point, one row for all nodes or a row for each; what its scenario writes; how near it gets.

    `uneven` is how near where nodes have paces of their own, as in real time: a method that lets them run apart weighs
    each node's objective by its steps, and its point moves with the paces.
    """

    point: Point
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    off: float = 1e-7
    uneven: float | None = None

    def bound(self, world: str) -> float:
        """How near it gets in `world`."""
        return self.off if self.uneven is None or world == "simulated" else self.uneven


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


def _ring() -> Rows:
    return sum((np.roll(np.eye(N), shift, 1) for shift in (-1, 0, 1)), np.zeros((N, N))) / 3


def _columns() -> Rows:
    shares = np.eye(N)
    for src, dst in ARCS:
        shares[dst, src] = 1.0
    return shares / shares.sum(0)


def _each(train: Callable[[int, Rows], Rows], x: Rows) -> Rows:
    return np.stack([train(i, x[i]) for i in range(N)])


def gossip(
    *, k: int = K, momentum: float = 0.0, rho: float = 0.0, matrix: Callable[[], Rows] = _ring, lian: bool = False
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
            return _ring() @ z, z

        rows: Rows = _settled(step, (np.zeros((N, DIM)), np.zeros((N, DIM))))[0]
        return rows

    return point


def quasi_global(beta: float, mu: float) -> Point:
    """V = beta m + g, X+ = W (X - lr V), m+ = mu m + (1 - mu) (x - x+) / lr."""

    def point(q: Quadratics) -> Rows:
        def step(state: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
            x, m = state
            after = _ring() @ (x - LR * (beta * m + _each(q.slope, x)))
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
                x = x + gamma * (_ring() - np.eye(N)) @ known
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


def _lazy(gamma: float) -> Callable[[], Rows]:
    return lambda: np.eye(N) + gamma * (_ring() - np.eye(N))


STAR = {"topology": "star"}
FULL = {"topology": "full"}
ARROWS = {"topology": {"kind": "edge_list", "edges": ARCS, "directed": True}}
ROUNDWISE = STAR | {"rounds": ORBIT}
TOP = {"compression": {"kind": "top_k", "fraction": 0.5, "gamma": 0.4}}
ONE = {"local_steps": 1}
FALLING = {"lr": 0.3, "lr_decay": 0.985, "local_steps": 1}
DISTIL: Mapping[str, Any] = {"per_class": 2, "distil_steps": 2, "distil_iterations": 20, "input_lr": 0.5}
TUNED = DISTIL | {"distil_gap": 2, "rate": 0.3, "rate_lr": 0.02, "tuning_lr": 1e-8, "augment": []}

KNOWN: Mapping[str, Known] = {
    "dpsgd": Known(point=gossip(k=1), algorithm=ONE),
    "lian_dpsgd": Known(point=gossip(k=1, lian=True), algorithm=ONE),
    "dfedavg": Known(point=gossip()),
    "dfedavgm": Known(point=gossip(momentum=0.5), algorithm={"momentum": 0.5}),
    "dfedsam": Known(point=gossip(rho=0.1), algorithm={"rho": 0.1}),
    "dfedsam_mgs": Known(
        point=gossip(rho=0.1, matrix=lambda: np.linalg.matrix_power(_ring(), 3)),
        algorithm={"rho": 0.1, "gossip_steps": 3},
    ),
    "oledfl_sgd": Known(point=ole(0.3), algorithm={"beta": 0.3}),
    "oledfl_sam": Known(point=ole(0.3, 0.1), algorithm={"beta": 0.3, "rho": 0.1}),
    "qg_dsgdm": Known(point=quasi_global(0.5, 0.6), algorithm=ONE | {"momentum": 0.5, "mu": 0.6}),
    "choco_sgd": Known(point=gossip(matrix=_lazy(0.4)), keys=TOP),
    "delicoco": Known(point=choco(0.4, 3, DIM // 2), algorithm={"gossip_steps": 3}, keys=TOP | {"rounds": ORBIT}),
    "qdfedavgm": Known(point=gossip(momentum=0.5, matrix=_lazy(0.4)), algorithm={"momentum": 0.5}, keys=TOP),
    "deepsqueeze": Known(
        point=gossip(), keys={"compression": {"kind": "qsgd", "bits": 14, "gamma": 1.0}, "rounds": 60}, off=5e-3
    ),
    "dispfl": Known(point=gossip(), algorithm={"density": 1.0}),
    "slowmo": Known(point=average(k=2 * K), algorithm={"every": 2, "beta": 0.3}, keys=FULL),
    "ad_psgd": Known(point=best, algorithm=FALLING, keys={"rounds": 400}, off=2e-2, uneven=0.5),
    "sgp": Known(point=push_sum(k=1), algorithm=ONE, keys=ARROWS),
    "osgp": Known(point=push_sum(), keys=ARROWS),
    "dfedsgpm": Known(point=push_sum(momentum=0.5), algorithm={"momentum": 0.5}, keys=ARROWS),
    "dfedsgpsm": Known(point=push_sum(momentum=0.5, rho=0.1), algorithm={"momentum": 0.5, "rho": 0.1}, keys=ARROWS),
    "dfedsgpsm_s": Known(
        point=best,
        algorithm=FALLING | {"momentum": 0.0, "rho": 0.0, "neighbors": 3},
        keys=FULL | {"rounds": 400},
        off=2e-2,
    ),
    "overlap_sgp": Known(point=push_sum(k=1, kind="early"), algorithm=ONE | {"tau": 1}, keys=ARROWS),
    "asyng": Known(point=push_sum(kind="frozen"), algorithm={"tau": 1, "clip_norm": None}, keys=ARROWS),
    "fedavg": Known(point=average(), keys=STAR),
    "fedsam": Known(point=average(rho=0.1), algorithm={"rho": 0.1}, keys=STAR),
    "mofedsam": Known(point=momentum_blended(0.1, 0.6), algorithm={"rho": 0.1, "alpha": 0.6}, keys=STAR),
    "scaffold": Known(point=scaffold(), keys=STAR),
    "fedgamma": Known(point=scaffold(rho=0.1), algorithm={"rho": 0.1}, keys=STAR),
    "feddyn": Known(point=dynamic(1.0), algorithm={"penalty": 1.0}, keys=STAR),
    "fedsmoo": Known(point=smoo(0.1, 1.0), algorithm={"rho": 0.1, "penalty": 1.0}, keys=ROUNDWISE),
    "fedlesam": Known(point=lesam(0.1), algorithm={"rho": 0.1}, keys=ROUNDWISE),
    "fedlesam_s": Known(point=scaffold(lesam=0.1), algorithm={"rho": 0.1}, keys=ROUNDWISE),
    "fedlesam_d": Known(point=dynamic(1.0, lesam=0.1), algorithm={"rho": 0.1, "penalty": 1.0}, keys=ROUNDWISE),
    "fedsynsam": Known(
        point=average(),
        algorithm=DISTIL | {"rho": 1e-4, "beta": 0.5, "warmup_rounds": 20, "synthetic_batch": 1},
        keys=STAR,
        off=1e-3,
    ),
    "dynafed": Known(point=average(), algorithm=TUNED | {"warmup_rounds": 20}, keys=STAR, off=1e-5),
    "dynafed_synonly": Known(point=average(), algorithm=TUNED | {"warmup_rounds": ROUNDS - 3}, keys=STAR, off=1e-5),
}
"""By method. FedSynSAM's ascent is so short, DynaFed's tuning so slow, that FedAvg's point is theirs."""


def scenario(name: str, **more: Any) -> dict[str, Any]:
    """A method on the quadratics, with its final models kept; `more` replaces keys."""
    known = KNOWN[name]
    rounds = known.keys.get("rounds", ROUNDS)
    return (
        {
            "schema": "netdfl/1",
            "name": name,
            "nodes": N,
            "rounds": rounds,
            "world": {"kind": "simulated"},
            "task": {"kind": "quadratic", "dim": DIM, "condition": 1.5, "curvature": CURVATURES},
            "algorithm": {"name": name, "lr": LR, "lr_decay": 1.0, "local_steps": K} | dict(known.algorithm),
            "topology": "ring",
            "wait": {"deadline": "none"},
            "evaluation": {"every": rounds, "keep_models": True},
        }
        | dict(known.keys)
        | more
    )


def distance(asked: Scenario, run: Path) -> float:
    """How far the models that a run of `asked` kept are from the point, in the worst coordinate of the worst node.

    Of a star the server's is judged, of all others every node's.
    """
    problem = Blueprint.of(asked).problem
    tasks = [problem.task(i, "cpu") for i in range(N)]
    centers, pulls = (np.stack([np.asarray(getattr(t, what)) for t in tasks]) for what in ("center", "curvature"))
    expected = KNOWN[asked.name].point(Quadratics(centers, pulls))
    judged = [N] if asked.has_server else range(N)
    kept = [read_snapshot(run / "models" / f"{node:03d}.safetensors") for node in judged]
    return float(np.abs(np.stack([np.asarray(each.x) / each.weight for each in kept]) - expected).max())
