"""Prove for every method, delivery and wait on small graphs what it survives: the table of docs/studies/proofs.md.

python -m tests.soak.proofs [--time 60] [--only dpsgd,sgp] [--cpu-hours 5]    # goes on where it was left
python -m tests.soak.proofs --table                                       # writes the page of the rows that are there

A cell is a method with a graph, a delivery and a wait; it is proven within three bounds apart. What can't be put
together has the reason. Rows lie in docs/studies/proofs.json; counterexamples are written to `runs/proofs`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import product
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

ROWS, PAGE, FOUND = ROOT / "docs/studies/proofs.json", ROOT / "docs/studies/proofs.md", ROOT / "runs/proofs"
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
DELIVERIES = ("plain", "acknowledged")
NEEDED: dict[str, dict[str, Any]] = {
    "oledfl_sgd": {"beta": 0.4},
    "oledfl_sam": {"beta": 0.4},
    "dfedsgpsm_s": {"neighbors": 1},
    "slowmo": {"every": 2},
    "dispfl": {"density": 0.5},
}
DETECTED = ("dpsgd", "sgp", "overlap_sgp", "ad_psgd", "fedavg")
"""One method of each family, proven with heartbeats as the failure detector, too."""


class Cell(NamedTuple):
    """One method with what is around it."""

    method: str
    graph: str
    delivery: str
    wait: str
    detector: str = "oracle"

    @property
    def name(self) -> str:
        """The cell in a few words."""
        return ", ".join(self)

    def scenario(self) -> dict[str, Any]:
        """Three rounds of a quadratic, whose local steps are exact."""
        wait = WAITS[self.wait]
        if self.wait == "quorum" and ALGORITHMS[self.method].family == "server":
            wait = {**wait, "for": {"quorum": 2}}
        return {
            "schema": "netdfl/1",
            "name": self.name.replace(", ", "-").replace(" ", "-").replace("_", "-"),
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


def row_of(cell: Cell, limit_s: float) -> dict[str, Any]:
    """What is proven of a cell, by bound: a word, how many schedules, and a sentence."""
    row: dict[str, Any] = {"cell": list(cell), "limit_s": limit_s}
    began = time.process_time()
    try:
        scenario = load(cell.scenario())
    except NetdflError as error:
        return row | {"not": str(error).partition(": ")[2]}
    row["bounds"] = {bound: _proven(scenario, cell, bound, limit_s) for bound in BOUNDS}
    return row | {"cpu_s": round(time.process_time() - began, 1)}


def _proven(scenario: Scenario, cell: Cell, bound: str, limit_s: float) -> dict[str, Any]:
    """The answer within one bound; of push-sum, stalls and weight apart."""
    found: dict[str, Any] = {}
    weighs = ALGORITHMS[cell.method].needs == frozenset({"doubly", "column"})
    for names in (("stall", "finish"), ("weight",)) if weighs else (("stall", "finish"),):
        try:
            answer = ScenarioProof(scenario, read_bound(bound), choose_properties(scenario, names)).run(limit_s)
        except NetdflError as error:
            found[names[0]] = {"word": "-", "why": str(error)}
            continue
        told: dict[str, Any] = {"schedules": answer.progress.schedules, "played": answer.progress.played}
        if answer.progress.broken is not None:
            text, sentence = write_counterexample(answer)
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{scenario.name}-{bound.replace(': ', '').replace(', ', '-')}-{names[0]}.yaml").write_text(text)
            word = {"stall": "stalls", "weight": "loses weight"}[names[0]]
            if answer.progress.broken[1] == "no error":
                word = "breaks"
            told |= {"word": word, "why": sentence, "faults": len(answer.faults)}
        else:
            told["word"] = "survives" if answer.survives else "too large"
        found[names[0]] = told
    return found


def read() -> list[dict[str, Any]]:
    """The rows that are there."""
    rows: list[dict[str, Any]] = json.loads(ROWS.read_text()) if ROWS.exists() else []
    return rows


def prove(only: str, limit_s: float, cpu_hours: float) -> list[dict[str, Any]]:
    """Make the rows that are not there, until the CPU hours are over."""
    rows, ends_s = read(), time.process_time() + cpu_hours * 3600
    done = {tuple(row["cell"]) for row in rows}
    for cell in cells():
        if tuple(cell) in done or (only and cell.method not in only.split(",")) or time.process_time() > ends_s:
            continue
        rows.append(row_of(cell, limit_s))
        ROWS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(cell.name, _in_short(rows[-1]), flush=True)
    return rows


def _in_short(row: dict[str, Any]) -> str:
    if "not" in row:
        return f"-: {row['not']}"
    return "; ".join(f"{bound}: {_word(told)}" for bound, told in row["bounds"].items())


def _word(told: dict[str, Any]) -> str:
    """One cell of the table: `survives 172`, `stalls (1)`, `stalls (1), loses weight (1)`."""
    words = []
    for each in told.values():
        rest = f" {each['schedules']:,}" if each["word"] in ("survives", "too large") else ""
        rest = f" ({each['faults']})" if "faults" in each else rest
        words.append(each["word"] + rest)
    return ", ".join(dict.fromkeys(words))


HEAD = """# Which methods survive which faults, proven

Each cell is a method on a graph, with a delivery and a wait, over three rounds of a quadratic:
[every schedule](../prove.md) of up to two losses, of one crash, and of one loss with one crash. `survives 172` is a
proof about 172 schedules, for these times and this seed; `stalls (1)` says that one fault suffices; `loses weight` is
about push-sum. Where two words stand, the first is about who waits and finishes, the second about the weight.
`too large` says how many schedules kept the property before the time was over.

`python -m tests.soak.proofs` makes the rows, which lie in [proofs.json](proofs.json); {cells} cells of {all_of} are
there, made in {hours:.2f} CPU hours.

| method | graph | delivery | wait | {bounds} |
|---|---|---|---|{lines}|
"""


def table(rows: list[dict[str, Any]]) -> str:
    """The page."""
    hours = sum(row.get("cpu_s", 0.0) for row in rows) / 3600
    bounds, lines = " | ".join(BOUNDS), "|".join("---" for _ in BOUNDS)
    head = HEAD.format(cells=len(rows), all_of=len(list(cells())), hours=hours, bounds=bounds, lines=lines)
    told = [row for row in rows if "not" not in row]
    found = [
        "| " + " | ".join((*_place(row), *(_word(each) for each in row["bounds"].values()))) + " |" for row in told
    ]
    reasons = dict.fromkeys(f"- {row['cell'][0]}, {row['cell'][1]}: {row['not']}" for row in rows if "not" in row)
    return head + "\n".join(found) + "\n\n## What does not go together\n\n" + "\n".join(reasons) + "\n"


def _place(row: dict[str, Any]) -> list[str]:
    method, graph, delivery, wait, detector = row["cell"]
    return [method, graph, delivery, wait if detector == "oracle" else f"{wait}, heartbeats"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="proofs about every method")
    parser.add_argument("--time", type=float, default=60.0, help="seconds for a bound of a cell")
    parser.add_argument("--cpu-hours", type=float, default=5.0)
    parser.add_argument("--only", default="", help="methods, such as dpsgd,sgp")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    rows = read() if args.table else prove(args.only, args.time, args.cpu_hours)
    PAGE.write_text(table(rows))
    sys.exit(0)


if __name__ == "__main__":
    main()
