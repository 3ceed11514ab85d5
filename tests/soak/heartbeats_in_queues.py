"""How long heartbeats are on their way behind a model in queues of packets; needs network namespaces.

python -m tests.soak.heartbeats_in_queues [--page docs/fidelity.md]

Two nodes send each other models of 2.5 MB over uplinks of 10 Mbit/s, and heartbeats beside them, ten a second. An
uplink's queue has a product of bandwidth and round trip, ten of them, or as many packets as an edge may hold. Beside
them stands the same fleet in `simulated`, where a heartbeat has its share at once. About a minute in all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import netdfl
from netdfl.record.run import Run
from tests.soak.disturbed import DisturbedError
from tests.soak.shared_packets import write

MARKS = "<!-- heartbeats: begin -->", "<!-- heartbeats: end -->"
EVERY_MS = 100
QUEUES: dict[str, dict[str, Any]] = {"50 kB": {"queue": "50kB"}, "500 kB": {"queue": "500kB"}, "4,096 packets": {}}
FLEET: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "heartbeats",
    "nodes": 2,
    "rounds": 4,
    "task": {"kind": "consensus", "dim": 312_500},
    "algorithm": "dpsgd",
    "topology": "full",
    "wait": {"for": "all", "deadline": "none"},
    "failure_detector": {"kind": "heartbeat", "every": f"{EVERY_MS}ms", "misses": 1000},
}


class Beats(NamedTuple):
    """Figures of heartbeats in s: their time on the way, and the longest time between two that came one after another.

    `missed` is the largest number of `misses` with which a detector calls the sender gone in the longest silence.
    """

    median_s: float
    longest_s: float
    silence_s: float
    missed: int


def scenario(queue: dict[str, Any], world: dict[str, Any]) -> dict[str, Any]:
    """The fleet, whose uplinks have this queue, in a world."""
    return FLEET | {"world": world, "links": {"default": {"latency": "20ms", "uplink": {"rate": "10Mbit", **queue}}}}


def beats_of(run: Run) -> Beats:
    """The figures of a run's heartbeats."""
    rows = run.rows(
        "SELECT src, sent_s, arrived_s FROM messages WHERE kind = 'heartbeat' AND fate = 'delivered' ORDER BY arrived_s"
    )
    return figures([(src, sent_s, arrived_s) for src, sent_s, arrived_s in rows])


def figures(rows: Sequence[tuple[int, float, float]]) -> Beats:
    """The figures of heartbeats (sender, sent, arrived), in order of arrival. Raises ValueError if there are none."""
    times = [arrived_s - sent_s for _, sent_s, arrived_s in rows]
    came = {src: [arrived_s for each, _, arrived_s in rows if each == src] for src, *_ in rows}
    silence_s = max((after - before for each in came.values() for before, after in pairwise(each)), default=0.0)
    return Beats(median(times), max(times), silence_s, max(0, ceil(silence_s * 1000 / EVERY_MS) - 1))


def measured(queue: dict[str, Any], world: dict[str, Any]) -> Beats:
    """Run the fleet. Raises DisturbedError where packets were late."""
    with tempfile.TemporaryDirectory() as folder:
        run = netdfl.run(netdfl.load(scenario(queue, world)), out=Path(folder) / "run", page=False)
        if run.result["verdict"] == "unknown":
            raise DisturbedError("; ".join(run.result["reasons"]))
        assert not run.result["reasons"], run.result["reasons"]
        return beats_of(run.run)


def row(name: str, found: Beats) -> str:
    """One row of the table."""
    return f"| {name} | {found.median_s:.2f} | {found.longest_s:.2f} | {found.silence_s:.2f} | {found.missed} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=Path("docs/fidelity.md"))
    chosen = parser.parse_args(arguments)
    rows = [
        "| queue of an uplink | median, s | longest, s | longest silence, s | gone at `misses` up to |",
        "|---|---|---|---|---|",
    ]
    for name, queue in QUEUES.items():
        rows.append(row(name, measured(queue, {"kind": "namespaces"})))
        print(rows[-1], flush=True)
    rows.append(row("the model, `simulated`", measured({}, {"kind": "simulated", "loss_layer": "packet"})))
    print("\n".join(rows))
    write(chosen.page, rows, MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
