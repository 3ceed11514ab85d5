"""D-PSGD on a ring, a process per node: netdfl beside plain gloo `isend`/`irecv`, in one run.

    python benchmarks/ring.py [--nodes 10 16] [--rounds 300] [--repeats 3]

Both train the same model on the same data with one batch of 32 a round, exchange the whole vector
with both neighbors and average. The figure is the time of a round over the last rounds but the first
50, from the moment that the slowest process had finished. The two take turns; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
WARM = 50


def netdfl_ring(nodes: int, rounds: int) -> float:
    """Milliseconds a round in the `processes` world."""
    import netdfl

    with tempfile.TemporaryDirectory() as directory:
        scenario = netdfl.load(HERE / "ring.yaml", [f"nodes={nodes}", f"rounds={rounds}"])
        finished = netdfl.run(scenario, out=Path(directory) / "run")
        assert finished.result["verdict"] == "pass", finished.result["reasons"]
        ends = dict(finished.run.rows("SELECT round, max(at_s) FROM metrics WHERE name = 'round_s' GROUP BY round"))
        return 1000 * (ends[rounds - 1] - ends[WARM - 1]) / (rounds - WARM)


def gloo_ring(nodes: int, rounds: int) -> float:
    """Milliseconds a round with torch.distributed alone."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--gloo", directory, "--rounds", str(rounds), "--nodes", str(nodes)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(nodes)]
        assert all(process.wait() == 0 for process in ranks)
        took = [json.loads((Path(directory) / f"{rank}.json").read_text()) for rank in range(nodes)]
    return 1000 * (max(t[1] for t in took) - max(t[0] for t in took)) / (rounds - WARM)


def gloo_rank(directory: Path, rank: int, nodes: int, rounds: int) -> None:
    """One node of the gloo ring."""
    import torch
    import torch.distributed as dist
    from ring_data import blobs
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=nodes)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10)
    )
    parameters = list(model.parameters())
    data = blobs(directory)
    x, y = (torch.from_numpy(part[rank::nodes].copy()) for part in (data.train_x, data.train_y))
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    left, right = torch.empty_like(flat), torch.empty_like(flat)
    ends = []
    for _ in range(rounds):
        indices = torch.randperm(len(y))[:32]
        grads = torch.autograd.grad(cross_entropy(model(x[indices]), y[indices]), parameters)
        flat.add_(torch.cat([g.reshape(-1) for g in grads]), alpha=-0.05)
        before, after = (rank - 1) % nodes, (rank + 1) % nodes
        work = [dist.isend(flat, before), dist.isend(flat, after), dist.irecv(left, before), dist.irecv(right, after)]
        for item in work:
            item.wait()
        flat = (flat + left + right) / 3
        for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.data = piece.view_as(parameter)
        ends.append(time.monotonic())
    (directory / f"{rank}.json").write_text(json.dumps([ends[WARM - 1], ends[-1]]))


def main() -> None:
    """Print a JSON list of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 16])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gloo", type=Path)
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    if args.gloo:
        return gloo_rank(args.gloo, args.rank, args.nodes[0], args.rounds)
    rows = []
    for nodes in args.nodes:
        pairs = [(netdfl_ring(nodes, args.rounds), gloo_ring(nodes, args.rounds)) for _ in range(args.repeats)]
        own, gloo = (statistics.median(values) for values in zip(*pairs, strict=True))
        rows.append(
            {
                "name": f"ring of {nodes}, a round",
                "value": round(own, 3),
                "unit": "ms",
                "reference": "gloo isend/irecv",
                "reference_value": round(gloo, 3),
                "ratio": round(own / gloo, 3),
            }
        )
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
