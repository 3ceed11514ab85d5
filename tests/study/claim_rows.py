"""Claims and rows for the tests of claims."""

from __future__ import annotations

from dataclasses import replace

from netdfl.study.claims.given import Rule, read_rule
from netdfl.study.claims.rows import CellRow, RowFolder
from netdfl.study.claims.work import ClaimStudy

SMALL = """
schema: netdfl/claims/1
level: 0.05
looks: [2]
budget: 1h
proof_rounds: 1
claims:
  momentum:
    says: Momentum adds to DFedAvg
    paper: "004"
    table: T1
    figure: mean_last_5
    better: MNIST/IID/DFedAvgM
    worse: MNIST/IID/DFedAvg
    instead:
      on: ten classes of noise
      sets:
        - "task.dataset={name: stand_in:pictures}"
        - "task.model={name: mlp, hidden: [4]}"
        - nodes=3
        - rounds=2
        - "topology={kind: full}"
        - algorithm.local_steps=1
"""


STAND_IN = '''
import numpy as np
from netdfl.training.data.dataset import Dataset

def pictures(root, /):
    """Ten classes of 6x6 noise around a mean each."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((10, 1, 6, 6))
    def split(n):
        y = np.arange(n) % 10
        return (means[y] + rng.standard_normal((n, 1, 6, 6))).astype(np.float32), y.astype(np.int64)
    return Dataset(*split(60), *split(30), 10)
'''


def rule_of(num: int, *, instead: bool = True, looks: str = "3, 5", first_seed: int = 0) -> Rule:
    """A rule with `num` claims on the same two cells, printed with a gain of 1.62."""
    head = f"schema: netdfl/claims/1\nlevel: 0.05\nlooks: [{looks}]\nbudget: 1h\nproof_rounds: 20\nclaims:\n"
    label = "Fashion-MNIST/Path(1)/10 clients/{}/QSGD-4bit"
    sides = f"better: {label.format('FedSAM')}, worse: {label.format('FedAvg')}"
    more = f", first_seed: {first_seed}" + (", instead: {on: elsewhere, sets: []}" if instead else "")
    lines = [f"  c{n}: {{says: x, paper: '003', table: TII, figure: last, {sides}{more}}}" for n in range(num)]
    return read_rule(head + "\n".join(lines))


def seeds(*gains: float) -> dict[int, float]:
    return dict(enumerate(gains))


def a_row(**changes: object) -> CellRow:
    row = CellRow(
        cell="c", file="f", method="m", sets=("a=1", "seed=0"), seed=0, rounds=6, verdict="done",
        course=(0.1, 0.5, 0.9, 0.8, 0.8, 0.7), train_accuracy=0.95, partition="p", event_log_hash="e",
        arithmetic="here", proof="log", commit="", cpu_s=60.0, bytes_sent=1, versions={},
    )  # fmt: skip
    return replace(row, **changes)  # type: ignore[arg-type]


def noisy_rows(folder: RowFolder, study: ClaimStudy, num: int, **changes: object) -> None:
    """Write rows of both sides for `num` seeds, with gains that decide nothing."""
    for seed in range(num):
        for side, wanted in study.cells["momentum"].items():
            accuracy = 0.5 + (0.1 * (-1) ** seed if side == "better" else 0)
            sets = wanted.cell(seed).sets
            row = a_row(file=wanted.file.stem, method=wanted.method, sets=sets, seed=seed, course=(accuracy,))
            folder.add(replace(row, **(changes if side == "better" else {})))  # type: ignore[arg-type]
