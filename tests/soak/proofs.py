"""Prove for every method, delivery and wait on small graphs what it survives: the table of docs/studies/proofs.md.

python -m tests.soak.proofs [--time 3600] [--only dpsgd,sgp] [--cpu-hours 5]    # goes on where it was left
python -m tests.soak.proofs_page                                          # writes the page of the rows that are there

A cell is a method with a graph, a delivery and a wait; it is proven within three bounds apart. What can't be put
together has the reason. Rows lie in docs/studies/proofs.json; counterexamples are written to `runs/proofs`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.errors import NetdflError
from netdfl.prove.bound import read_bound
from netdfl.prove.counterexample import write_counterexample
from netdfl.prove.proof import ScenarioProof
from netdfl.prove.properties import choose_properties
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from tests.soak.tally import ROOT

ROWS, FOUND = ROOT / "docs/studies/proofs.json", ROOT / "runs/proofs"
BOUNDS = ("loss: 2", "crash: 1", "loss: 1, crash: 1")
GRAPHS: dict[str, dict[str, Any]] = {
    "ring of 3": {"nodes": 3, "topology": "ring"},
    "ring of 4": {"nodes": 4, "topology": "ring"},
    "star of 4": {"nodes": 3, "topology": "star"},
    "directed ring of 4": {"nodes": 4, "topology": "directed_ring"},
}
WAITS: dict[str, dict[str, Any]] = {
    "all": {"for": "all", "deadline": "none"},
    "quorum": {"for": {"quorum": 1}, "deadline": "none"},
    "deadline": {"for": "all", "deadline": "auto"},
    "skip": {"for": "all", "deadline": "none", "on_stall": "skip"},
}
WORDS = {"stall": "stalls", "weight": "loses weight", "counted": "miscounts"}
DELIVERIES = ("plain", "acknowledged")
NEEDED: dict[str, dict[str, Any]] = {
    "oledfl_sgd": {"beta": 0.4},
    "oledfl_sam": {"beta": 0.4},
    "dfedsgpsm_s": {"neighbors": 1},
    "slowmo": {"every": 2},
    "dispfl": {"density": 0.5},
}
TWO_AND_ONE = "loss: 2, crash: 1"
"""A bound with very many schedules, for some cells alone."""
CHOSEN = (
    ("dpsgd", "ring of 3", "plain", "deadline"),
    ("dpsgd", "ring of 3", "acknowledged", "deadline"),
    ("sgp", "ring of 3", "acknowledged", "deadline"),
    ("choco_sgd", "ring of 3", "plain", "deadline"),
    ("overlap_sgp", "ring of 3", "acknowledged", "deadline"),
    ("fedavg", "star of 4", "acknowledged", "deadline"),
)
DETECTED = ("dpsgd", "sgp", "overlap_sgp", "ad_psgd", "fedavg")
"""One method of each family, proven with heartbeats as the failure detector, too."""


class Cell(NamedTuple):
    """One method with what is around it."""

    method: str
    graph: str
    delivery: str
    wait: str
    detector: str = "oracle"
    bounds: tuple[str, ...] = BOUNDS

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the cell, and of its bound where it is not those of all."""
        return self[:5] if self.bounds == BOUNDS else (*self[:5], *self.bounds)

    @property
    def name(self) -> str:
        """The cell in a few words."""
        return ", ".join(self.key)

    def scenario(self) -> dict[str, Any]:
        """Three rounds of a quadratic, whose local steps are exact."""
        wait = WAITS[self.wait]
        if self.wait == "quorum" and ALGORITHMS[self.method].family == "server":
            wait = {**wait, "for": {"quorum": 2}}
        return {
            "schema": "netdfl/1",
            "name": ", ".join(self[:5]).replace(", ", "-").replace(" ", "-").replace("_", "-"),
            "rounds": 3,
            "world": {"kind": "simulated", "compute": "10ms"},
            "task": {"kind": "quadratic"},
            "algorithm": {"name": self.method, "lr": 0.05, **NEEDED.get(self.method, {})},
            "delivery": self.delivery,
            "wait": wait,
            "links": {"default": {"latency": "5ms"}},
            "failure_detector": {"kind": self.detector},
            "evaluation": {"every": 3, "local": "none"},
            **GRAPHS[self.graph],
        }


def cells() -> Iterator[Cell]:
    """Every cell, methods in the order of the catalog."""
    for method in ALGORITHMS:
        yield from (Cell(method, *rest) for rest in product(GRAPHS, DELIVERIES, WAITS))
        if method in DETECTED:
            yield from (Cell(method, *rest, "heartbeat") for rest in product(GRAPHS, DELIVERIES, WAITS))
    yield from (Cell(*place, bounds=(TWO_AND_ONE,)) for place in CHOSEN)


def row_of(cell: Cell, limit_s: float) -> dict[str, Any]:
    """What is proven of a cell, by bound: a word, how many schedules, and a sentence."""
    row: dict[str, Any] = {"cell": list(cell.key), "limit_s": limit_s}
    began = time.process_time()
    try:
        scenario = load(cell.scenario())
    except NetdflError as error:
        return row | {"not": str(error).partition(": ")[2]}
    row["bounds"] = {bound: _proven(scenario, cell, bound, limit_s) for bound in cell.bounds}
    return row | {"cpu_s": round(time.process_time() - began, 1)}


def _proven(scenario: Scenario, cell: Cell, bound: str, limit_s: float) -> dict[str, Any]:
    """The answer within one bound; of push-sum, stalls and weight apart."""
    return {names[0]: _answer(scenario, bound, names, limit_s) for names in _asked(cell)}


def _asked(cell: Cell) -> list[tuple[str, ...]]:
    """What is asked of a cell, each apart, so that a stall hides no lost weight."""
    asked: list[tuple[str, ...]] = [("stall", "finish")]
    if ALGORITHMS[cell.method].needs == frozenset({"doubly", "column"}):
        asked += [("weight",), *([("counted",)] if cell.delivery == "acknowledged" else [])]
    return asked


def _answer(scenario: Scenario, bound: str, names: tuple[str, ...], limit_s: float) -> dict[str, Any]:
    try:
        answer = ScenarioProof(scenario, read_bound(bound), choose_properties(scenario, names)).run(limit_s)
    except NetdflError as error:
        return {"word": "-", "why": str(error)}
    told: dict[str, Any] = {"schedules": answer.progress.schedules, "played": answer.progress.played}
    if answer.progress.broken is None:
        return told | {"word": "survives" if answer.survives else "too large"}
    text, sentence = write_counterexample(answer)
    FOUND.mkdir(parents=True, exist_ok=True)
    (FOUND / f"{scenario.name}-{bound.replace(': ', '').replace(', ', '-')}-{names[0]}.yaml").write_text(text)
    word = "breaks" if answer.progress.broken[1] == "no error" else WORDS[names[0]]
    events = [dict(fault.event) for fault in answer.faults]
    return told | {"word": word, "why": sentence, "faults": len(events), "events": events}


def read(path: Path = ROWS) -> list[dict[str, Any]]:
    """The rows that are there."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def prove(path: Path, only: str, limit_s: float, cpu_hours: float) -> list[dict[str, Any]]:
    """Make the rows that are not there, until the CPU hours are over."""
    rows, ends_s = read(path), time.process_time() + cpu_hours * 3600
    done = {tuple(row["cell"]) for row in rows}
    for cell in cells():
        if cell.key in done or (only and cell.method not in only.split(",")) or time.process_time() > ends_s:
            continue
        rows.append(row_of(cell, limit_s))
        path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(cell.name, _in_short(rows[-1]), flush=True)
    return rows


def _in_short(row: dict[str, Any]) -> str:
    if "not" in row:
        return f"-: {row['not']}"
    return "; ".join(f"{bound}: {word_of(told)}" for bound, told in row["bounds"].items())


def word_of(told: dict[str, Any]) -> str:
    """One cell of the table: `survives 172`, `stalls (1)`, `stalls (1), loses weight (1)`."""
    words = []
    for each in told.values():
        rest = f" {each['schedules']:,}" if each["word"] in ("survives", "too large") else ""
        rest = f" ({each['faults']})" if "faults" in each else rest
        words.append(each["word"] + rest)
    return ", ".join(dict.fromkeys(words))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="proofs about every method")
    parser.add_argument("--time", type=float, default=3600.0, help="seconds for a bound of a cell")
    parser.add_argument("--cpu-hours", type=float, default=5.0)
    parser.add_argument("--only", default="", help="methods, such as dpsgd,sgp")
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of the rows")
    args = parser.parse_args()
    prove(args.rows, args.only, args.time, args.cpu_hours)


if __name__ == "__main__":
    main()
