"""Find ten rare bugs, planted behind patches of netdfl's parts: guided, drawn blindly, and by seeds alone.

python -m tests.soak.planted_bugs [--count 10] [--runs 1500] [--blind] [--write docs/studies/planted.json]

Each trial is one bug of `tests/explore/planted.py`. It fails where the guided search does not meet the bug within the
budget, or what it met is not shrunk to at most three faults, or a node less would show it too. With `--blind`, draws of
the same fault model are counted too; seeds alone draw nothing but the scenario's seed, over links with loss and jitter.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import netdfl
from netdfl.core.errors import InputError
from netdfl.explore import edits
from netdfl.explore.cause import cause_of
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Budget, Exploration, Explored, Found
from netdfl.explore.shrink import Shrinker, Shrunk
from netdfl.explore.trial import variant
from tests.soak.tally import ROOT, append, repeat

sys.path.insert(0, str(ROOT / "tests" / "explore"))
from planted import BUGS, LUCK, Planted

SEED = 1


class Met(Exception):
    """The bug was met."""


def search(bug: Planted, runs: int, *, guided: bool) -> tuple[Exploration, Found | None, int]:
    """The exploration, what it met, and the number of runs that it took."""
    exploration = Exploration(netdfl.load(bug.scenario), seed=SEED, guided=guided)
    met: list[tuple[Found, int]] = []

    def stop(explored: Explored) -> None:
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


def shrink(exploration: Exploration, found: Found) -> Shrunk:
    """What matters of it."""
    shown = variant(exploration.scenario, found.trial.events, found.trial.luck)
    return Shrinker((), exploration.executor).shrink(shown, found.cause.key)


def fewer_would_do(shrunk: Shrunk, executor: Executor) -> bool:
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


def trial(number: int, runs: int, told: list[dict[str, Any]], *, draws: bool) -> str | None:
    """One bug: guided, by seeds alone, and with `draws` by blind draws too."""
    bug = BUGS[number % len(BUGS)]
    with bug.planted():
        exploration, found, guided = search(bug, runs, guided=True)
        line: dict[str, Any] = {"bug": bug.name, "what": bug.what, "budget": runs, "seeds": by_seeds(bug, runs)}
        line["guided"] = None if found is None else guided
        if draws:
            _, drawn, blind = search(bug, runs, guided=False)
            line["blind"] = None if drawn is None else blind
        told.append(line)
        if found is None:
            return f"{bug.name}: not met in {runs} runs"
        shrunk = shrink(exploration, found)
        line |= {
            "faults": len(shrunk.plain["events"]),
            "nodes": shrunk.scenario.nodes,
            "rounds": shrunk.scenario.rounds,
        }
        print(json.dumps(line), flush=True)
        if line["faults"] > 3:
            return f"{bug.name}: shrunk to {line['faults']} faults"
        return f"{bug.name}: a node less shows it too" if fewer_would_do(shrunk, exploration.executor) else None


def write(path: Path, told: list[dict[str, Any]]) -> None:
    """Add what was counted to what the file has."""
    before = json.loads(path.read_text()) if path.exists() else []
    kept = [line for line in before if line["bug"] not in {each["bug"] for each in told}]
    path.write_text(json.dumps(kept + told, indent=1) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="planted bugs")
    parser.add_argument("--count", type=int, default=len(BUGS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument("--blind", action="store_true", help="count blind draws, too")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    told: list[dict[str, Any]] = []

    def one(rng: Random, number: int) -> str | None:
        wrong = trial(args.first + number, args.runs, told, draws=args.blind)
        if args.write is not None:
            write(args.write, told)
        return wrong

    counted = repeat(one, count=args.count, seed=SEED)
    append("rare bugs that were planted are met and shrunk", counted, SEED)
    sys.exit(bool(counted.failures))


if __name__ == "__main__":
    main()
