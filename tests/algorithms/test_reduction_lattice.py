"""Which method becomes which, and when: the papers' relations as exact tests, one row each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from algorithm_fleets import EXCHANGE, SMALL, network, run, stack

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.testing.rounds import States

Params = dict[str, Any]
SYM: Params = {"kind": "random_sym", "neighbors": 3}
RING: Params = {"kind": "ring"}
PUSH: Params = {"kind": "random_push", "out_neighbors": 2}
FULL: Params = {"kind": "full"}
STAR: Params = {"kind": "star"}
HALF: Params = {"kind": "star", "participation": 0.5}


@dataclass(frozen=True)
class Row:
    """`left` on `on` equals `right` on `right_on` (the same network, if None) to `within`; 0: bit for bit."""

    left: str
    left_params: Params
    right: str
    right_params: Params
    on: Params = field(default_factory=lambda: SYM)
    right_on: Params | None = None
    within: float = 0.0

    def __str__(self) -> str:
        return f"{self.left}{self.left_params}={self.right}{self.right_params} on {self.on['kind']}"


LR = {"lr": 0.2, "lr_decay": 0.9, "weight_decay": 0.01}

ROWS = [
    Row("dfedavgm", {"momentum": 0.0}, "dfedavg", {}),
    Row("dpsgd", {}, "dfedavg", {"local_epochs": 1}),
    Row("dfedsam", {"rho": 0.0}, "dfedavg", {}),
    Row("dfedsam_mgs", {"gossip_steps": 1}, "dfedsam", {}),
    Row("oledfl_sgd", {"beta": 0.0}, "dfedavg", {}),
    Row("oledfl_sam", {"beta": 0.0, "rho": 0.05}, "dfedsam", {"rho": 0.05}),
    Row("oledfl_sam", {"rho": 0.0}, "oledfl_sgd", {}),
    Row("qg_dsgdm", {"momentum": 0.0}, "dpsgd", {"local_steps": 1}),
    Row("sgp", {}, "osgp", {"local_epochs": 1}, PUSH),
    Row("dfedsgpm", {"momentum": 0.0, "clip_norm": None}, "osgp", {}, PUSH),
    Row("dfedsgpsm", {"rho": 0.0}, "dfedsgpm", {}, PUSH),
    Row("dfedsgpsm", {"rho": 0.0, "momentum": 0.0, "clip_norm": None}, "osgp", {}, PUSH),
    Row("dispfl", {"density": 1.0}, "dfedavg", {}, SYM, within=1e-12),
    Row("slowmo", {"every": 1, "beta": 0.0}, "dfedavg", {"local_epochs": 1}, FULL, within=1e-12),
    # the compressed methods, with nothing compressed
    Row("choco_sgd", {}, "dpsgd", {"local_steps": 1}, RING),
    Row("deepsqueeze", {}, "dpsgd", {"local_steps": 1}, SYM),
    Row("delicoco", {"gossip_steps": 1}, "dpsgd", {"local_steps": 1}, RING),
    Row("delicoco", {}, "dfedsam_mgs", {"rho": 0.0, "local_steps": 1}, RING),
    Row("qdfedavgm", {"momentum": 0.0}, "dfedavg", {}, RING),
    # push-sum on a doubly stochastic matrix is gossip
    Row("osgp", {}, "dfedavg", {}, SYM, within=1e-12),
    Row("osgp", {}, "dfedavg", {}, RING, within=1e-12),
    Row("sgp", {}, "dpsgd", {}, RING, within=1e-12),
    Row("dfedsgpm", {"clip_norm": 1.0}, "dfedavgm", {"clip_norm": 1.0}, RING, within=1e-12),
    Row("dfedsgpsm", {"momentum": 0.0}, "dfedsam", {"rho": 0.1, "clip_norm": 10.0}, RING, within=1e-12),
    # on a full graph, gossip is a server that every client takes part with
    Row("dfedavg", {}, "fedavg", {}, FULL, STAR, within=1e-12),
    Row("dfedsam", {"rho": 0.05}, "fedsam", {}, FULL, STAR, within=1e-12),
    Row("fedsam", {"rho": 0.0}, "fedavg", {}, HALF),
    Row("mofedsam", {"alpha": 1.0}, "fedsam", {}, HALF),
    Row("fedgamma", {"rho": 0.0}, "scaffold", {}, HALF),
    Row("fedlesam", {"rho": 0.0}, "fedavg", {}, HALF),
    Row("fedlesam_s", {"rho": 0.0}, "scaffold", {}, HALF),
    Row("fedlesam_d", {"rho": 0.0}, "feddyn", {}, HALF),
    Row("fedsmoo", {"rho": 0.0}, "feddyn", {}, HALF),
    Row("fedsynsam", {"beta": 1.0}, "fedsam", {}, HALF),
    Row("fedsynsam", {"rho": 0.0}, "fedavg", {}, HALF),
    # before the synthetic examples are there
    Row("fedsynsam", {"warmup_rounds": 4}, "fedsam", {}, HALF),
    Row("dynafed", {"warmup_rounds": 4}, "fedavg", {}, HALF),
    Row("dynafed_synonly", {"warmup_rounds": 4}, "fedavg", {}, HALF),
]


def after(name: str, params: Params, on: Params) -> States:
    alg = ALGORITHMS[name].build(EXCHANGE, **(LR | SMALL.get(name, {}) | params))
    return run(alg, network(**on), 4, noise=0.3)


def final(states: States, on: Params) -> torch.Tensor:
    """All clients' vectors, or, as a server's mean over the round's participants, the server's alone."""
    return max(states.items())[1].x if on["kind"] == "star" else stack(states)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_left_reduces_to_right(row: Row) -> None:
    right_on = row.right_on or row.on
    left = final(after(row.left, row.left_params, row.on), row.on)
    right = final(after(row.right, row.right_params, right_on), right_on).expand_as(left)
    torch.testing.assert_close(left, right, rtol=0, atol=row.within)


FREE: Params = {
    "momentum": 0.5,
    "rho": 0.3,
    "beta": 0.5,
    "gossip_steps": 2,
    "alpha": 0.5,
    "every": 3,
    "density": 0.5,
    "local_epochs": 3,
    "warmup_rounds": 2,
    "clip_norm": 0.1,
}


@pytest.mark.parametrize("row", [row for row in ROWS if row.left_params], ids=str)
def test_without_the_reduction_they_differ(row: Row) -> None:
    """The rows could not fail if the parameters had no effect."""
    changed = {name: FREE[name] for name in row.left_params}
    left = final(after(row.left, row.left_params | changed, row.on), row.on)
    right = final(after(row.right, row.right_params, row.right_on or row.on), row.right_on or row.on)
    assert float((left - right).abs().max()) > 1e-6


@pytest.mark.parametrize("on", [SYM, RING], ids=str)
def test_push_sum_weight_stays_one_on_a_doubly_stochastic_matrix(on: Params) -> None:
    alg = ALGORITHMS["osgp"].build(EXCHANGE)
    weights = [alg.mixing.weight(state.mixing) for state in run(alg, network(**on), 10).values()]
    assert weights == pytest.approx([1.0] * len(weights), abs=1e-12)


def test_push_sum_weights_differ_on_a_column_stochastic_matrix() -> None:
    alg = ALGORITHMS["osgp"].build(EXCHANGE)
    weights = [alg.mixing.weight(state.mixing) for state in run(alg, network(**PUSH), 3).values()]
    assert max(weights) - min(weights) > 0.05
