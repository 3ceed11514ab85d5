"""What a run of an exploration costs, and what a second process gives: `python benchmarks/exploring.py --runs 1000`.

Eight nodes over ten rounds without training, on links that lose messages, with drawn faults and delays. Prints CPU
seconds of all processes and the wall time, with one process and with two in turns, and the median of their ratios.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import netdfl
from netdfl.explore.explore import Budget, Exploration
from netdfl.study.background import stop_background

SCENARIO = {
    "schema": "netdfl/1",
    "name": "exploring",
    "nodes": 8,
    "rounds": 10,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 4},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"deadline": "40ms"},
    "links": {"default": {"latency": "5ms", "loss": 0.02}},
}


def main() -> None:
    """Take the turns and print them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=1)
    args = parser.parse_args()
    stop_background()
    ratios = []
    for _ in range(args.turns):
        walls = [explore(args.runs, jobs) for jobs in (1, 2)]
        ratios.append(walls[0] / walls[1])
    print(f"two processes are {statistics.median(ratios):.2f} times as fast as one")


def explore(runs: int, jobs: int) -> float:
    """Explore once; the wall seconds that it took."""
    exploration = Exploration(netdfl.load(SCENARIO), jobs=jobs)
    used, began = cpu_s(), time.monotonic()
    exploration.run(Budget(runs=runs))
    wall = time.monotonic() - began
    print(f"{jobs} process{'es' * (jobs > 1)}, {runs} runs: {cpu_s() - used:.1f} CPU s, {wall:.1f} s", flush=True)
    return wall


def cpu_s() -> float:
    """CPU seconds of this process and of those that have ended below it."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
