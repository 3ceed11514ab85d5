"""What an automatic deadline costs and gives, in virtual time: the table of docs/survival.md.

python -m tests.simulated.deadlines

runs 16 nodes for 60 rounds of gossip over links that lose 0 to 30 % of all messages, with ten seeds each, and writes
the table between its two marks. A fleet without loss is what the slowest needed path takes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from netdfl.record.directory import RunDirectory
from netdfl.running.prepare import prepare
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "survival.md"
MARKS = ("<!-- the table of deadlines -->\n", "<!-- its end -->\n")
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


def rows(graph: str, latency: str, compute: str) -> Iterator[str]:
    """The table's rows of one kind of fleet, one for each loss."""
    ideal = ran(graph, latency, COMPUTE[compute], 0.0, SEEDS[0]).duration_s
    for loss in LOSSES:
        runs = [ran(graph, latency, COMPUTE[compute], loss, seed) for seed in SEEDS]
        data = len(runs) * data_messages(graph)
        late, asked = sum(run.late for run in runs) / data, sum(run.sent for run in runs) / data - 1
        cells = (
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
        yield f"| {' | '.join(cells)} |\n"


def data_messages(graph: str) -> int:
    """How many messages the algorithm sends in a run."""
    return NODES * ROUNDS * {"ring": 2, "random": 4, "exponential": 4}[graph]


def write(lines: Iterable[str]) -> None:
    """Write the table with these rows into the document."""
    columns = (
        "graph",
        "latency",
        "compute",
        "loss",
        "a round",
        "against no loss",
        "at most",
        "late",
        "asked",
        "distance at the end",
    )
    table = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n{''.join(lines)}"
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    DOCUMENT.write_text(f"{before}{MARKS[0]}{table}{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(row for fleet in product(GRAPHS, LATENCIES, COMPUTE) for row in rows(*fleet))
