"""Find ten rare bugs, planted behind patches of netdfl's parts: by the search, and by as many seeds alone.

python -m tests.soak.planted_bugs [--runs 2500] [--searches 3]    # goes on where it was left
python -m tests.soak.planted_bugs --table                         # writes the table of docs/exploring.md

Each trial is one bug of `tests/explore/planted.py`, a row of docs/studies/planted.json. It fails where one of the
searches, which differ in their seed, does not meet it within the budget, or what was met is not shrunk to at most three
faults, or a node less would show it too. Seeds alone draw nothing but the scenario's seed, over links with loss and
jitter, with the same budget.
"""

from __future__ import annotations

import argparse
import json
import sys
from hashlib import sha256
from random import Random
from typing import Any

import netdfl
from netdfl.core.errors import InputError
from netdfl.explore import edits
from netdfl.explore.cause import cause_of
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Budget, Discovery, Exploration, ExplorationResult
from netdfl.explore.shrink import Shrinker, ShrunkScenario
from netdfl.explore.trial import variant
from tests.soak.tally import ROOT, append, repeat

sys.path.insert(0, str(ROOT / "tests" / "explore"))
from planted import BUGS, LUCK, Planted

SEED = 1
ROWS, PAGE = ROOT / "docs/studies/planted.json", ROOT / "docs/exploring.md"
MOST_FAULTS = 3
DECIDE = (
    *("search", "mutations", "faults", "trial", "features", "explore"),
    *("execute", "cause", "shrink", "edits"),
)
"""The modules that a row depends on."""


class Met(Exception):
    """The bug was met."""


def search(bug: Planted, runs: int, seed: int) -> tuple[Exploration, Discovery | None, int]:
    """The exploration, what it met, and the number of runs that it took."""
    exploration = Exploration(netdfl.load(bug.scenario), seed=seed)
    met: list[tuple[Discovery, int]] = []

    def stop(explored: ExplorationResult) -> None:
        for found in explored.findings.values():
            if "PlantedBug" in found.cause.key:
                met.append((found, explored.runs))
                raise Met

    try:
        exploration.run(Budget(runs=runs), stop)
    except Met:
        return exploration, *met[0]
    return exploration, None, runs


def by_seeds(bug: Planted, runs: int) -> int | None:
    """How many seeds of a scenario with lossy links it takes; None: more than `runs`."""
    scenario, executor = netdfl.load({**bug.scenario, **LUCK}), Executor()
    for seed in range(runs):
        run = executor.run(scenario.model_copy(update={"seed": seed}))
        if "PlantedBug" in run.broke:
            return seed + 1
    return None


def shrink(exploration: Exploration, found: Discovery) -> ShrunkScenario:
    """What matters of it."""
    shown = variant(exploration.scenario, found.trial.events, found.trial.luck)
    return Shrinker((), exploration.executor).shrink(shown, found.cause.key)


def fewer_would_do(shrunk: ShrunkScenario, executor: Executor) -> bool:
    """Whether the same shows with any one node less."""
    for node in range(shrunk.scenario.nodes):
        smaller = edits.without_node(shrunk.plain, node)
        try:
            cause = None if smaller is None else cause_of(executor.run(netdfl.load(smaller)))
        except InputError:
            continue
        if cause is not None and cause.key == shrunk.cause.key:
            return True
    return False


def hunt(bug: Planted, runs: int, searches: int) -> dict[str, Any]:
    """What is counted of one bug: a row, which goes on where it was left."""
    by = made_by(runs, searches)
    row = next((row for row in read() if row["bug"] == bug.name and row["by"] == by), {})
    row = {"bug": bug.name, "what": bug.what, "by": by, "budget": runs, "met": [], "shrunk": []} | row
    with bug.planted():
        if "seeds" not in row:
            row["seeds"] = by_seeds(bug, runs)
            keep(row)
        for seed in range(SEED + len(row["met"]), SEED + searches):
            exploration, found, after = search(bug, runs, seed)
            if found is not None:
                row["shrunk"].append(sizes(exploration, found))
            row["met"].append(None if found is None else after)
            keep(row)
    return row


def sizes(exploration: Exploration, found: Discovery) -> dict[str, Any]:
    """What is left of a finding."""
    shrunk = shrink(exploration, found)
    small = {"faults": len(shrunk.plain["events"]), "nodes": shrunk.scenario.nodes, "rounds": shrunk.scenario.rounds}
    return small | {"fewer_would_do": fewer_would_do(shrunk, exploration.executor)}


def wrong_with(row: dict[str, Any]) -> str | None:
    """What a row misses."""
    if None in row["met"]:
        return (
            f"{row['bug']}: not met in {row['budget']} runs by {row['met'].count(None)} of {len(row['met'])} searches"
        )
    for each in row["shrunk"]:
        if each["faults"] > MOST_FAULTS:
            return f"{row['bug']}: shrunk to {each['faults']} faults"
        if each["fewer_would_do"]:
            return f"{row['bug']}: a node less shows it too"
    return None


def made_by(runs: int, searches: int) -> str:
    """What a row depends on: another search, shrinking or bug makes it anew."""
    files = [*(ROOT / "netdfl/explore" / f"{name}.py" for name in DECIDE), ROOT / "tests/explore/planted.py"]
    texts = b"\0".join(file.read_bytes() for file in files)
    return sha256(texts + f"{runs} {searches}".encode()).hexdigest()[:16]


def read() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(ROWS.read_text()) if ROWS.exists() else []


def keep(row: dict[str, Any]) -> None:
    """Put a row in the place of the one that the bug had."""
    rows = {each["bug"]: each for each in [*read(), row]}
    kept = [rows[bug.name] for bug in BUGS if bug.name in rows]
    ROWS.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")


def table(rows: list[dict[str, Any]]) -> str:
    """A row a bug."""
    lines = ["| planted | search | seeds | faults | nodes |", "|---" * 5 + "|"]
    for row in rows:
        met, seeds = (", ".join(map(_number, numbers)) for numbers in (row["met"], [row["seeds"]]))
        sizes = (", ".join(str(each[size]) for each in row["shrunk"]) for size in ("faults", "nodes"))
        lines.append(f"| {row['what']} | {met} | {seeds} | " + " | ".join(sizes) + " |")
    return "\n".join(lines)


def _number(number: int | None) -> str:
    return "no" if number is None else str(number)


def write_table() -> None:
    """Put the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- python -m tests.soak.planted_bugs --table -->\n", "<!-- end -->"
    head, _, rest = text.partition(begin)
    PAGE.write_text(head + begin + table(read()) + "\n" + end + rest.partition(end)[2], encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="planted bugs")
    parser.add_argument("--runs", type=int, default=2500)
    parser.add_argument("--searches", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        write_table()
        return

    def one(rng: Random, number: int) -> str | None:
        row = hunt(BUGS[number], args.runs, args.searches)
        print(json.dumps(row), flush=True)
        return wrong_with(row)

    counted = repeat(one, count=len(BUGS), seed=SEED)
    what = f"rare bugs that were planted are met and shrunk ({args.runs} runs, {args.searches} searches each)"
    append(what, counted, SEED)
    sys.exit(bool(counted.failures))


if __name__ == "__main__":
    main()
