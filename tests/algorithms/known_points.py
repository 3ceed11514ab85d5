"""Where every method settles on quadratics that disagree, computed in numpy, and a scenario that shall get there.

Node i has f_i(x) = 1/2 sum_k h_ik (x_k - c_ik)^2; curvatures and centers differ, all start at 0, the rate is constant
and a round has two steps unless a method says otherwise. So most methods have a fixed point that is not the optimum
sum h_i c_i / sum h_i: nodes drift between two averages. A point is found by iterating the paper's listing, written out
in `listings` without netdfl's code, until it stands still. Nothing but the centers and curvatures is netdfl's.

Some have no point of their own: those that choose partners at random or compress whole models come near one as far as
`off` says. FedLESAM's and FedSMOO's ascent of constant length and the references of several exchanges a round need not
come to rest, so these are compared with the listing after as many rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from listings import (
    ARCS,
    DIM,
    LR,
    ORBIT,
    K,
    N,
    Point,
    Quadratics,
    average,
    best,
    choco,
    dynamic,
    gossip,
    lazy,
    lesam,
    momentum_blended,
    ole,
    push_sum,
    quasi_global,
    ring,
    scaffold,
    smoo,
)

from netdfl.host.blueprint import Blueprint
from netdfl.host.models import read_snapshot
from netdfl.scenario.model.schema import Scenario

ROUNDS = 120
CURVATURES = [0.6, 1.0, 2.0, 1.5, 0.8, 1.2]


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
        point=gossip(rho=0.1, matrix=lambda: np.linalg.matrix_power(ring(), 3)),
        algorithm={"rho": 0.1, "gossip_steps": 3},
    ),
    "oledfl_sgd": Known(point=ole(0.3), algorithm={"beta": 0.3}),
    "oledfl_sam": Known(point=ole(0.3, 0.1), algorithm={"beta": 0.3, "rho": 0.1}),
    "qg_dsgdm": Known(point=quasi_global(0.5, 0.6), algorithm=ONE | {"momentum": 0.5, "mu": 0.6}),
    "choco_sgd": Known(point=gossip(matrix=lazy(0.4)), keys=TOP),
    "delicoco": Known(point=choco(0.4, 3, DIM // 2), algorithm={"gossip_steps": 3}, keys=TOP | {"rounds": ORBIT}),
    "qdfedavgm": Known(point=gossip(momentum=0.5, matrix=lazy(0.4)), algorithm={"momentum": 0.5}, keys=TOP),
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
