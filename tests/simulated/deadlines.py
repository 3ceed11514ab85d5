"""What an automatic deadline costs and gives, in virtual time: the rows and the picture of docs/waiting.md.

python -m tests.simulated.deadlines

runs 16 nodes for 60 rounds of gossip over links that lose 0 to 30 % of all messages, with ten seeds each, writes the
rows and draws them (with `--draw` it draws the rows that are there). A fleet without loss is what the slowest needed
path takes.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from netdfl.record.directory import RunDirectory
from netdfl.running.prepare import prepare
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads

ROWS = Path(__file__).resolve().parents[2] / "docs" / "waiting" / "deadlines.csv"
COLUMNS = (
    *("graph", "latency", "compute", "loss", "a round", "against no loss", "at most", "late", "asked"),
    "distance at the end",
)
NODES, ROUNDS = 16, 60
GRAPHS = {
    "ring": {"kind": "ring"},
    "random": {"kind": "random_sym", "neighbors": 4},
    "exponential": {"kind": "exponential"},
}
LATENCIES = ("5ms", "50ms")
COMPUTE: dict[str, dict[str, Any]] = {
    "none": {},
    "200 ms, node 0 2 s": {"compute": "200ms", "stragglers": {"nodes": [0], "factor": 10}},
}
LOSSES = (0.0, 0.01, 0.05, 0.1, 0.3)
SEEDS = range(10)
COLORS = ("#0072b2", "#d55e00", "#009e73")
STROKES = {"5ms": "-", "50ms": "--"}


@dataclass(frozen=True)
class Ran:
    """A run: its virtual time, data messages that came late, messages of all kinds, the nodes' distance at the end."""

    duration_s: float
    late: int
    sent: int
    consensus: float


def ran(graph: str, latency: str, compute: dict[str, Any], loss: float, seed: int, **keys: Any) -> Ran:
    """Run one fleet and count; `keys` replace keys of its scenario."""
    document = {
        "schema": "netdfl/1",
        "name": "deadlines",
        "seed": seed,
        "nodes": NODES,
        "rounds": ROUNDS,
        "world": {"kind": "simulated", **compute},
        "task": {"kind": "consensus", "dim": 8},
        "algorithm": "dpsgd",
        "topology": GRAPHS[graph],
        "links": {"default": {"latency": latency, "loss": loss}},
        "wait": {"deadline": "auto"},
    }
    scenario = loads(json.dumps(document | keys))
    with tempfile.TemporaryDirectory() as path:
        directory = RunDirectory.create(Path(path), scenario.name, scenario.seed)
        prepare(scenario, directory)
        outcome = supervise(scenario, directory)
    assert outcome.status.evaluation is not None
    messages, distance = outcome.status.messages, outcome.status.evaluation.consensus_distance
    assert distance is not None
    assert outcome.figures.virtual_duration_s is not None
    return Ran(outcome.figures.virtual_duration_s, messages.late, messages.sent, distance)


def rows(graph: str, latency: str, compute: str) -> Iterator[tuple[str, ...]]:
    """The table's rows of one kind of fleet, one for each loss."""
    ideal = ran(graph, latency, COMPUTE[compute], 0.0, SEEDS[0]).duration_s
    for loss in LOSSES:
        runs = [ran(graph, latency, COMPUTE[compute], loss, seed) for seed in SEEDS]
        data = len(runs) * data_messages(graph)
        late, asked = sum(run.late for run in runs) / data, sum(run.sent for run in runs) / data - 1
        yield (
            graph,
            latency.replace("ms", " ms"),
            compute,
            f"{loss:.0%}",
            f"{mean(run.duration_s for run in runs) / ROUNDS:.3f} s",
            f"{mean(run.duration_s for run in runs) / ideal:.2f}",
            f"{max(run.duration_s for run in runs) / ideal:.2f}",
            f"{late:.2%}",
            f"{asked:.0%}",
            f"{max(run.consensus for run in runs):.0e}",
        )


def data_messages(graph: str) -> int:
    """How many messages the algorithm sends in a run."""
    return NODES * ROUNDS * {"ring": 2, "random": 4, "exponential": 4}[graph]


def write(found: Iterable[Sequence[str]]) -> None:
    """Write these rows."""
    with ROWS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *found])


def read() -> list[dict[str, str]]:
    """The rows as they were written."""
    with ROWS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def draw(target: Path) -> None:
    """Draw the time of a round against no loss, by loss, a panel for each kind of compute."""
    mpl.rcParams |= {"svg.hashsalt": "netdfl", "svg.fonttype": "none", "font.size": 9}
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    panels = figure.subplots(1, len(COMPUTE), sharey=True)
    titles = ("nodes only talk", "200 ms of compute, node 0 takes 2 s")
    for axes, compute, title in zip(panels, COMPUTE, titles, strict=True):
        for (graph, color), (latency, stroke) in product(zip(GRAPHS, COLORS, strict=True), STROKES.items()):
            kind = (graph, latency.replace("ms", " ms"), compute)
            line = [row for row in read() if (row["graph"], row["latency"], row["compute"]) == kind]
            places = [float(row["loss"].rstrip("%")) for row in line]
            times = [float(row["against no loss"]) for row in line]
            axes.plot(places, times, color=color, linestyle=stroke, marker="o", ms=3, label=f"{graph}, {kind[1]}")
        axes.set(yscale="log", xlabel="loss (%)", title=title)
        axes.grid(alpha=0.2)
    panels[0].set_ylabel("a round, against no loss")
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        write(row for fleet in product(GRAPHS, LATENCIES, COMPUTE) for row in rows(*fleet))
    draw(ROWS.with_suffix(".svg"))
