"""D-PSGD on a ring, a process per node: netdfl beside plain gloo `isend`/`irecv`, in one run.

    python benchmarks/ring.py [--nodes 10 16] [--rounds 300] [--repeats 3] [--compressed | --tls | --inline]
    python benchmarks/ring.py --resources --nodes 10 --rounds 2000 --repeats 1

Both train the same model on the same data with one batch of 32 a round, exchange the whole vector
with both neighbors and average. The figure is the time of a round over the last rounds but the first
50, from the moment that the slowest process had finished; and the CPU time of a node in one of these rounds, user and
system: for netdfl what the processes of a run take beyond those of a run of 50 rounds. The two take turns; medians are
printed.

`--resources` prints which share of the ring's CPU time the table of resources takes: what the looks at `/proc` took, in
each process, of what the nodes' processes took in the rounds but the first 50.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from figures import Row, show

HERE = Path(__file__).parent
WARM = 50


COMPRESSED = ("compression={kind: qsgd, bits: 8, scaled: true}",)
TLS = ("world={kind: processes, tls: true}",)
INLINE = ("world={kind: processes, shared_from: null}",)
MOST_FOR_RESOURCES = 2.0
"""The most that the table of resources may take of a ring's CPU time, in percent."""
SLOW = ("links={default: {rate: 100Mbit}}",)


class Took(NamedTuple):
    """Milliseconds a round, and of a processor a node and round."""

    wall_ms: float
    cpu_ms: float


def cpu_s(who: int) -> float:
    """User and system time of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def netdfl_ring(nodes: int, rounds: int, sets: tuple[str, ...] = ()) -> Took:
    """In the `processes` world."""
    began = cpu_s(resource.RUSAGE_CHILDREN)
    netdfl_run(nodes, WARM, sets)
    short = cpu_s(resource.RUSAGE_CHILDREN)
    wall_ms = netdfl_run(nodes, rounds, sets)
    extra_s = cpu_s(resource.RUSAGE_CHILDREN) - short - (short - began)
    return Took(wall_ms, 1000 * extra_s / (rounds - WARM) / nodes)


def netdfl_run(nodes: int, rounds: int, sets: tuple[str, ...]) -> float:
    """Milliseconds a round but for the first; 0 where there are no others."""
    import netdfl

    with tempfile.TemporaryDirectory() as directory:
        scenario = netdfl.load(HERE / "ring.yaml", [f"nodes={nodes}", f"rounds={rounds}", *sets])
        finished = netdfl.run(scenario, out=Path(directory) / "run")
        assert finished.result["verdict"] != "fail", finished.result["reasons"]
        ends = dict(finished.run.rows("SELECT round, max(at_s) FROM metrics WHERE name = 'round_s' GROUP BY round"))
        milliseconds: float = 1000 * (ends[rounds - 1] - ends[WARM - 1]) / max(rounds - WARM, 1)
        return milliseconds


def resources_percent(nodes: int, rounds: int) -> float:
    """Percent of a ring's CPU time that the looks at `/proc` take; those of a run of 50 rounds count as well."""
    from ring_looks import noted_looks

    with tempfile.TemporaryDirectory() as notes:
        ring = netdfl_ring(nodes, rounds, (f"task.dataset={{name: 'ring_looks:blobs', notes: '{notes}'}}",))
        looks = noted_looks(Path(notes))
    ring_s = ring.cpu_ms / 1000 * nodes * (rounds - WARM)
    print(f"{len(looks)} looks of {1000 * statistics.median(looks):.2g} ms at the median", file=sys.stderr)
    return 100 * sum(looks) / ring_s


def gloo_ring(nodes: int, rounds: int) -> Took:
    """With torch.distributed alone."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--gloo", directory, "--rounds", str(rounds), "--nodes", str(nodes)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(nodes)]
        assert all(process.wait() == 0 for process in ranks)
        took = [json.loads((Path(directory) / f"{rank}.json").read_text()) for rank in range(nodes)]
    per_round = 1000 / (rounds - WARM)
    wall_ms = per_round * (max(t[1] for t in took) - max(t[0] for t in took))
    return Took(wall_ms, per_round * statistics.fmean(t[3] - t[2] for t in took))


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
    ends, used = [], []
    for _ in range(rounds):
        indices = torch.randperm(len(y))[:32]
        grads = torch.autograd.grad(cross_entropy(model(x[indices]), y[indices]), parameters)
        flat.add_(torch.cat([g.reshape(-1) for g in grads]), alpha=-0.05)
        before, after = (rank - 1) % nodes, (rank + 1) % nodes
        work = [dist.isend(flat, before), dist.isend(flat, after), dist.irecv(left, before), dist.irecv(right, after)]
        for item in work:
            assert item is not None
            item.wait()
        flat = (flat + left + right) / 3
        for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.data = piece.view_as(parameter)
        ends.append(time.monotonic())
        used.append(cpu_s(resource.RUSAGE_SELF))
    (directory / f"{rank}.json").write_text(json.dumps([ends[WARM - 1], ends[-1], used[WARM - 1], used[-1]]))


def main() -> None:
    """Print a JSON list of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 16])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compressed", action="store_true", help="8-bit CHOCO against uncompressed instead")
    parser.add_argument("--tls", action="store_true", help="mutual TLS against plain text instead")
    parser.add_argument("--inline", action="store_true", help="bodies in shared memory against inline instead")
    parser.add_argument("--resources", action="store_true", help="what the looks at /proc take instead")
    parser.add_argument("--gloo", type=Path)
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    if args.gloo:
        return gloo_rank(args.gloo, args.rank, args.nodes[0], args.rounds)
    rows = []
    for n in args.nodes:
        if args.resources:
            percent = statistics.median(resources_percent(n, args.rounds) for _ in range(args.repeats))
            of = (round(percent, 3), "% of its CPU", "aim", MOST_FOR_RESOURCES, round(percent / MOST_FOR_RESOURCES, 4))
            rows.append(Row(f"ring of {n}, table of resources", *of))
            continue
        if args.tls:
            certified = partial(netdfl_ring, n, sets=TLS)
            rows += turns(f"ring of {n}, mutual TLS", "plain text", args, certified, partial(netdfl_ring, n))
            continue
        if args.inline:
            inline = partial(netdfl_ring, n, sets=INLINE)
            rows += turns(f"ring of {n}, shared memory", "inline", args, partial(netdfl_ring, n), inline)
            continue
        if not args.compressed:
            rows += turns(f"ring of {n}", "gloo isend/irecv", args, partial(netdfl_ring, n), partial(gloo_ring, n))
            continue
        for where, links in (("loopback", ()), ("100 Mbit/s", SLOW)):
            packed = lambda rounds, n=n, links=links: netdfl_ring(n, rounds, (*COMPRESSED, *links))  # noqa: E731
            plain = lambda rounds, n=n, links=links: netdfl_ring(n, rounds, links)  # noqa: E731
            rows += turns(f"ring of {n}, 8-bit CHOCO, {where}", "uncompressed", args, packed, plain)
    show(rows, f"medians of {args.repeats} runs of {args.rounds} rounds")


def turns(
    name: str, reference: str, args: argparse.Namespace, own: Callable[[int], Took], other: Callable[[int], Took]
) -> list[Row]:
    """The medians of `own` and `other`, taken in turn."""
    pairs = [(own(args.rounds), other(args.rounds)) for _ in range(args.repeats)]
    rows = []
    for index, what in enumerate(("a round", "CPU a node and round")):
        value, against = (statistics.median(took[index] for took in values) for values in zip(*pairs, strict=True))
        rows.append(
            Row(f"{name}, {what}", round(value, 3), "ms", reference, round(against, 3), round(value / against, 3))
        )
    return rows


if __name__ == "__main__":
    main()
