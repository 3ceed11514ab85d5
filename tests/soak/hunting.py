"""The study `docs/studies/hunting.md`: explore every algorithm in every wait style, and keep what was found.

python -m tests.soak.hunting [--runs 32] [--only NAME ...]    # adds rows to docs/studies/hunting.json
python -m tests.soak.hunting --shrink                         # a scenario of each kind of failure, in scenarios/found
python -m tests.soak.hunting --table                          # writes the tables of the page
python -m tests.soak.hunting --cut-off                        # writes what becomes of a push-sum node that is cut off

Every run is drawn by itself, so that rates are told from all of them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.errors import InputError, ScenarioError
from netdfl.explore.cause import cause_of
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Budget, Exploration, wilson
from netdfl.explore.findings import write_finding
from netdfl.explore.shrink import Shrinker
from netdfl.explore.trial import variant
from netdfl.scenario.loading.resolved import to_plain
from tests.soak.tally import ROOT

ROWS, PAGE, FOUND = (
    ROOT / each for each in ("docs/studies/hunting.json", "docs/studies/hunting.md", "scenarios/found")
)
SEED = 23
SCHEMA = "# yaml-language-server: $schema=../../netdfl/scenario/netdfl-1.schema.json\n"
STYLES: Mapping[str, dict[str, Any]] = {
    "synchronous": {"wait": {"deadline": "none"}, "delivery": "plain"},
    "deadline": {"wait": {"deadline": "40ms"}, "delivery": "plain"},
    "auto": {"wait": {"deadline": "auto"}, "delivery": "plain"},
    "acknowledged": {"wait": {"deadline": "none"}, "delivery": {"kind": "acknowledged", "timeout": "20ms"}},
}
FLEET: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "nodes": 6,
    "rounds": 6,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "quadratic", "dim": 2},
    "links": {"default": {"latency": "5ms"}},
    "explore": {"faults": 2},
    "expect": {"weight_lost": "none", "diverged": "none"},
}
GRAPHS = {"server": "star", "overlap": "directed_ring"}
KINDS = {
    "stalled": "stall",
    "lost mass": ("verdict weight_lost", "verdict push-sum weight"),
    "diverged": "verdict diverged",
    "broke": "broke",
}


def scenario_of(name: str, style: str) -> dict[str, Any]:
    """The fleet of one cell."""
    entry = ALGORITHMS[name]
    directed = "column" in entry.needs and style != "acknowledged"
    graph: Any = GRAPHS.get(
        entry.family, "directed_ring" if directed else "full" if "average" in entry.needs else "ring"
    )
    if entry.family == "overlap" and style == "acknowledged":
        graph = "ring"
    if name.startswith("oledfl"):
        graph = {"kind": "ring", "weights": {"kind": "metropolis", "lazy": True}}
    if name == "dfedsgpsm_s":
        graph = "full"
    more = {"compression": {"kind": "top_k", "fraction": 0.5}} if entry.scheme else {}
    return {**FLEET, **STYLES[style], "name": f"{name}-{style}", "algorithm": name, "topology": graph, **more}


def explore(name: str, style: str, runs: int) -> dict[str, Any]:
    """One cell: how often each cause was met, or why it can't be."""
    row: dict[str, Any] = {"algorithm": name, "style": style}
    try:
        scenario = netdfl.load(scenario_of(name, style))
        exploration = Exploration(scenario, seed=SEED, guided=False)
    except (ScenarioError, InputError) as error:
        return row | {"refused": re.sub(r"^scenario: ", "", str(error).splitlines()[0])}
    explored = exploration.run(Budget(runs=runs))
    causes = [
        {"key": key, "text": found.cause.text, "count": len(found.numbers), "trial": found.trial.to_json()}
        for key, found in sorted(explored.findings.items())
    ]
    return row | {"runs": explored.runs - explored.refused, "left_out": dict(explored.left_out), "causes": causes}


def kind_of(key: str) -> str:
    """Stalled, lost mass, diverged, broke, or other."""
    return next((kind for kind, start in KINDS.items() if key.startswith(start)), "other")


def read() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(ROWS.read_text()) if ROWS.exists() else []


def hunt(runs: int, only: list[str]) -> None:
    """Every cell that has no row yet."""
    rows = read()
    known = {(row["algorithm"], row["style"]) for row in rows}
    for name in only or ALGORITHMS:
        for style in STYLES:
            if (name, style) in known:
                continue
            row = explore(name, style, runs)
            met = Counter(kind_of(each["key"]) for each in row.get("causes", ()))
            print(name, style, row.get("refused", dict(met)), flush=True)
            rows.append(row)
            ROWS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def representatives(rows: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """For each kind of failure and wait style, its commonest cause in the first algorithm that shows it most."""
    best: dict[tuple[str, str], tuple[int, dict[str, Any], dict[str, Any]]] = {}
    for row in rows:
        for cause in row.get("causes", ()):
            place = (kind_of(cause["key"]), row["style"])
            if place not in best or cause["count"] > best[place][0]:
                best[place] = (cause["count"], row, cause)
    for (kind, style), (_, row, cause) in best.items():
        yield f"{kind}_{style}".replace(" ", "_"), row, cause


def shrink_all() -> None:
    """Write one scenario of each kind of failure."""
    FOUND.mkdir(exist_ok=True)
    for file, row, cause in representatives(read()):
        path = FOUND / f"{file}.yaml"
        if path.exists():
            continue
        scenario = netdfl.load(scenario_of(row["algorithm"], row["style"]))
        executor = Executor()
        shown = variant(scenario, cause["trial"]["events"], cause["trial"]["luck"])
        found = cause_of(executor.run(shown))
        if found is None or found.key != cause["key"]:
            print(f"{file}: does not show any more", flush=True)
            continue
        shrunk = Shrinker((), executor, 250).shrink(shown, cause["key"])
        shrunk.plain["name"] = f"found-{file.replace('_', '-')}"
        shrunk.plain["expect"] = expected(kind_of(cause["key"]), cause["key"])
        note = f"Found in {row['algorithm']} ({row['style']}): {wilson(cause['count'], row['runs'])} of the runs."
        path.write_text(SCHEMA + write_finding(shrunk, note))
        print(file, shrunk.runs, shrunk.cause.text, flush=True)


def expected(kind: str, key: str) -> dict[str, str]:
    """What the shrunk scenario has to show."""
    if kind == "stalled":
        return {"deadlock": "some"} if "deadlock" in key else {"stall": "some"}
    return {{"lost mass": "weight_lost", "diverged": "diverged"}.get(kind, "unfinished"): "some"}


def table(rows: list[dict[str, Any]]) -> str:
    """A row an algorithm, a column a wait style."""
    lines = ["| | " + " | ".join(STYLES) + " |", "|---" * (len(STYLES) + 1) + "|"]
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        cells = [next((r for r in rows if (r["algorithm"], r["style"]) == (name, style)), {}) for style in STYLES]
        lines.append(f"| {name} | " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any]) -> str:
    if "runs" not in row:
        return "-"
    met: Counter[str] = Counter()
    for cause in row["causes"]:
        met[kind_of(cause["key"])] += cause["count"]
    told = [f"{kind} {_rate(count, row['runs'])}" for kind, count in met.most_common()]
    return ", ".join(told) or f"nothing {_rate(0, row['runs'])}"


def _rate(count: int, runs: int) -> str:
    rate = wilson(count, runs)
    return f"{100 * count / runs:.0f} % ({100 * rate.low:.0f} to {100 * rate.high:.0f})"


def cut_off() -> str:
    """Push-sum on a full graph, with one node that is cut off for good: how far the models are apart in some rounds."""
    found = to_plain(netdfl.load(FOUND / "diverged_deadline.yaml"))
    event = {**found["events"][0], "for": "10s"}
    looks = (1, 5, 9, 12, 15)
    lines = ["| distance after round | " + " | ".join(map(str, looks)) + " |", "|---" * (len(looks) + 1) + "|"]
    for name, entry in ALGORITHMS.items():
        if "column" not in entry.needs or entry.family == "overlap":
            continue
        text = {**found, "algorithm": name, "rounds": 16, "events": [event], "expect": {}}
        run = Executor().run(netdfl.load(text))
        far = {each.round: each.value for each in run.rows.measured if each.name == "consensus_distance"}
        lines.append(f"| {name} | " + " | ".join(f"{far[round]:.2g}" for round in looks) + " |")
    return "\n".join(lines)


def write_table(option: str, text: str) -> None:
    """Put a table into the page, where the option that makes it is named."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- python -m tests.soak.hunting {option} -->\n", "<!-- end -->"
    head, _, rest = page.partition(begin)
    PAGE.write_text(head + begin + text + "\n" + end + rest.partition(end)[2], encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="hunting")
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--cut-off", action="store_true")
    args = parser.parse_args()
    if args.shrink:
        shrink_all()
    elif args.table:
        write_table("--table", table(read()))
    elif args.cut_off:
        write_table("--cut-off", cut_off())
    else:
        hunt(args.runs, args.only)


if __name__ == "__main__":
    main()
