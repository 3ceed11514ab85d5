"""Two versions of netdfl in paired turns: the median ratio of each cost, with its 95 % interval.

    python benchmarks/paired.py DIR [--turns 10] [--cases messages ring start body simulated neighbors] [--width 0.1]
        [--together | --beside]

DIR holds the source of the other version. In a turn both take the same case, one right after the other, and the next
turn begins with the other one: a machine that becomes slower makes both slower. With `--together` both run at the same
time, on all cores. Both then feel the same noise, which makes ratios of CPU time several times as exact on a shared
machine. With `--beside` they do so too, each on half of the cores, and on the other half in the next turn: better where
caches decide, as with bodies of 45 MB. A ratio is this version's cost over the other's in one turn. The interval of its
median goes by ranks (a binomial sum), so it assumes no distribution; where it is wider than `--width` more turns are
taken, up to three times as many.

- `messages`: CPU of a message of a whole simulated run, 100 and 1,000 nodes, as `runs.py` takes it.
- `ring`: CPU of a node and round of a ring of ten processes, beyond those of a run of 50 rounds.
- `start`: CPU of a run of one round of 16 processes, with all that starts and ends it.
- `body`: CPU of a round in which each of five processes sends 45 MB to the four others.
- `simulated`, `neighbors`: what these benchmarks print, each version's own file: wall time, or speed.

Prints a JSON list of rows: name, the two medians, their unit, the median ratio, the interval, the turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from figures import about
from runs import ROOT, apart, case

Costs = Mapping[str, float]
When = Literal["in turns", "together", "beside"]
"""When both versions take a case: one after the other, at the same time on all cores, or each on half of them."""
WARM, ROUNDS = 50, 500


def interval(ratios: list[float], level: float = 0.95) -> tuple[float, float]:
    """Return the narrowest interval between two ranks, as far from both ends, that holds the median at `level`."""
    n = len(ratios)
    outside = [2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n // 2)]
    rank = max((k for k, chance in enumerate(outside) if 1 - chance >= level), default=0)
    ordered = sorted(ratios)
    return ordered[rank], ordered[n - 1 - rank]


def run_cpu(source: Path, scenario: str | Mapping[str, Any], *sets: str) -> float:
    """Return the CPU seconds of `netdfl run` with all its processes, of a file or of a scenario's keys."""
    with tempfile.TemporaryDirectory() as directory:
        file = scenario if isinstance(scenario, str) else f"{directory}/scenario.json"
        if not isinstance(scenario, str):
            Path(file).write_text(json.dumps(scenario))
        settings = [f"--set={each}" for each in sets]
        return apart(source, "-m", "netdfl", "run", file, "--no-page", f"--out={directory}/run", *settings)[1]


def messages(source: Path) -> Costs:
    """Microseconds of a message, by graph, links and number of nodes."""
    found = {}
    for nodes, (graph, links) in product((100, 1000), (("static", "delay"), ("redrawn", "delay"), ("static", "rules"))):
        costs = case(source, nodes, max(2, 20_000 // (10 * nodes)), graph, links, report=False)
        found[f"{nodes:,} nodes, {graph}, {links}: a message, us"] = costs["a message"]
    return found


def ring(source: Path) -> Costs:
    """Milliseconds of a node and round; `ring_data` lies beside the scenario."""
    file = str(source.resolve() / "benchmarks" / "ring.yaml")
    short, whole = (run_cpu(source, file, f"rounds={rounds}") for rounds in (WARM, ROUNDS))
    return {"ring of 10: CPU of a node and round, ms": 1000 * (whole - short) / (ROUNDS - WARM) / 10}


def start(source: Path) -> Costs:
    """Seconds of a run of one round."""
    file = str(ROOT / "scenarios" / "quickstart.yaml")
    return {"start and end of 16 processes: CPU, s": run_cpu(source, file, "nodes=16", "rounds=1", "expect={}")}


def body(source: Path, rounds: int = 30) -> Costs:
    """Milliseconds of a round of five nodes that send each other 45 MB."""
    keys = {
        "schema": "netdfl/1",
        "name": "body",
        "nodes": 5,
        "task": {"kind": "consensus", "dim": 11_250_000, "dtype": "float32"},
        "algorithm": "dpsgd",
        "topology": "full",
        "world": "processes",
    }
    short, whole = (run_cpu(source, {**keys, "rounds": each}) for each in (1, 1 + rounds))
    return {"45 MB to 4 neighbors: CPU of a round of 5, ms": 1000 * (whole - short) / rounds}


def printed(name: str, source: Path, *arguments: str) -> Costs:
    """Return the figures that another benchmark prints; where more is better, their inverse."""
    found, _ = apart(source, str(source.resolve() / "benchmarks" / f"{name}.py"), *arguments)
    rows = json.loads(found)
    return {
        f"{name}: {row['name']}, {row['unit']}": 1 / row["value"] if row["unit"].endswith("/s") else row["value"]
        for row in rows
    }


def simulated(source: Path) -> Costs:
    return printed("simulated", source, "--repeats", "1")


def neighbors(source: Path) -> Costs:
    return printed("neighbors", source, "--repeats", "10")


CASES: Mapping[str, Callable[[Path], Costs]] = {
    each.__name__: each for each in (messages, ring, start, body, simulated, neighbors)
}


def one_turn(take: Callable[[Path], Costs], order: tuple[Path, Path], when: When) -> Mapping[Path, Costs]:
    """Return the costs of both versions; a process of its own for each counts the CPU time of its children."""
    if when == "in turns":
        return {source: take(source) for source in order}
    cores = sorted(os.sched_getaffinity(0))
    on = (cores[::2], cores[1::2]) if when == "beside" and len(cores) > 1 else (cores, cores)
    with ProcessPoolExecutor(len(order)) as pool:
        return dict(zip(order, pool.map(partial(_on, take), order, on), strict=True))


def _on(take: Callable[[Path], Costs], source: Path, cores: list[int]) -> Costs:
    """Return the costs of one version, with its processes on `cores`."""
    os.sched_setaffinity(0, cores)
    return take(source)


def paired(
    take: Callable[[Path], Costs], other: Path, turns: int, width: float, when: When = "in turns"
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of one case."""
    taken: list[tuple[Costs, Costs]] = []
    while len(taken) < turns or (len(taken) < 3 * turns and _widest(taken) > width):
        order = (ROOT, other) if len(taken) % 2 else (other, ROOT)
        costs = one_turn(take, order, when)
        taken.append((costs[ROOT], costs[other]))
    for name in _names(taken):
        ratios = _ratios(taken, name)
        low, high = interval(ratios)
        yield {
            "name": name,
            "here": statistics.median(own[name] for own, _ in taken),
            "there": statistics.median(his[name] for _, his in taken),
            "ratio": round(statistics.median(ratios), 4),
            "interval": [round(low, 4), round(high, 4)],
            "turns": len(taken),
        }


def _names(taken: list[tuple[Costs, Costs]]) -> list[str]:
    return [name for name in taken[0][0] if name in taken[0][1]]


def _ratios(taken: list[tuple[Costs, Costs]], name: str) -> list[float]:
    return [own[name] / his[name] for own, his in taken]


def _widest(taken: list[tuple[Costs, Costs]]) -> float:
    """Return the width of the widest interval so far."""
    bounds = [interval(_ratios(taken, name)) for name in _names(taken)]
    return max(high - low for low, high in bounds)


def main() -> None:
    """Print a JSON list of rows; each also on stderr as soon as its case is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--cases", choices=CASES, nargs="+", default=["messages", "ring", "start", "body"])
    parser.add_argument("--width", type=float, default=0.1)
    at_once = parser.add_mutually_exclusive_group()
    at_once.add_argument("--together", action="store_true", help="run both versions at the same time")
    at_once.add_argument("--beside", action="store_true", help="at the same time, each on half of the cores")
    args = parser.parse_args()
    when: When = "together" if args.together else "beside" if args.beside else "in turns"
    found = []
    for name in args.cases:
        for row in paired(CASES[name], args.other, args.turns, args.width, when):
            print(row, file=sys.stderr, flush=True)
            found.append(row)
    print(about(f"{args.turns} turns or more"), file=sys.stderr)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
