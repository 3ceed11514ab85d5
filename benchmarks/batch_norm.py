"""What becomes of batch norm's running statistics, and what that is worth: `python benchmarks/batch_norm.py`."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from statistics import fmean

import netdfl

MODEL = """
from torch import nn


class Conv(nn.Sequential):
    def __init__(self, width: int = 16):
        first = nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)
        second = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU()
        super().__init__(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))
"""
SCENARIO = """schema: netdfl/1
name: batch-norm
nodes: 8
rounds: 20
world: simulated
task:
  dataset: {name: digits, partition: {kind: dirichlet}}
  model: {name: "normed:Conv"}
  drop_last: true
algorithm: {name: dfedavg, lr: 0.1, local_epochs: 2}
topology: ring
evaluation: {every: 20}
"""
METHODS = {"dfedavg": "ring", "osgp": "{kind: random_push, out_neighbors: 2}"}
FIGURES = ("test_accuracy", "mean_personal_accuracy")


def judged(folder: Path, method: str, alpha: float, policy: str, seed: int) -> list[float]:
    """Accuracies of the average model, and of each node's model on its own labels."""
    sets = [f"algorithm.name={method}", f"topology={METHODS[method]}", f"seed={seed}"]
    sets += [f"task.dataset.partition.alpha={alpha}", f"task.model.buffers={policy}"]
    out = folder / "-".join((method, str(alpha), policy, str(seed)))
    metrics = netdfl.run(netdfl.load(folder / "s.yaml", sets), out=out, page=False).result["metrics"]
    return [metrics[name]["last"] for name in FIGURES]


def main() -> None:
    """Print a line for each method, partition and policy: means over two seeds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "normed.py").write_text(MODEL)
        (folder / "s.yaml").write_text(SCENARIO)
        for method, alpha, policy in product(METHODS, (0.1, 1.0), ("average", "local", "reset")):
            seeds = [judged(folder, method, alpha, policy, seed) for seed in (0, 1)]
            average, own = (fmean(values) for values in zip(*seeds, strict=True))
            print(f"{method} alpha {alpha} {policy}: average model {average:.1%}, own labels {own:.1%}", flush=True)


if __name__ == "__main__":
    main()
