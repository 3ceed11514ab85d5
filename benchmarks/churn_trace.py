"""A trace of churn: when which node is away, for `churn: "*", file: ...` of a scenario.

    python benchmarks/churn_trace.py --nodes 10000 --share 0.2 --hours 24 --away 2 --seed 1

Prints CSV: `node,leave_s,join_s`. A share of the nodes is away once, from a time drawn evenly over the hours, for an
exponential time with the mean `away`; who would come back after the end stays away for good.
"""

from __future__ import annotations

import argparse

import numpy as np


def main() -> None:
    """Print the rows, in the order of the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--away", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    nodes = rng.choice(args.nodes, round(args.share * args.nodes), replace=False)
    leave = np.sort(rng.uniform(0, 3600 * args.hours, len(nodes)))
    join = leave + rng.exponential(3600 * args.away, len(nodes)) + 1
    print("node,leave_s,join_s")
    for node, begin, end in zip(nodes, leave, join, strict=True):
        print(f"{node},{begin:.0f},{f'{end:.0f}' if end < 3600 * args.hours else ''}")


if __name__ == "__main__":
    main()
