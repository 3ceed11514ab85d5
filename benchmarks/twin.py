"""Does the twin of a fleet foresee what it would do on another network?

    python benchmarks/twin.py [--rounds 6] [--write]

A fleet of four runs in `namespaces` (TCP, packets), `netdfl fit` makes its twin, and the twin says in `simulated` how
long a round takes with half the bandwidth, with twice the nodes, and on other graphs. Each of these then runs in
`namespaces`, too. Prints the fit and the table; `--write` puts both into docs/studies/twin.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import about

from netdfl.record.run import Run, open_run
from netdfl.running.run import run
from netdfl.scenario.load import load
from netdfl.study.twin.fitting import Fit
from netdfl.study.twin.twin import Twin, make_twin, pace

PAGE = Path(__file__).resolve().parents[1] / "docs" / "studies" / "twin.md"
BASE: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "fleet",
    "nodes": 4,
    "world": "namespaces",
    "task": {"kind": "consensus", "dim": 50_000},
    "algorithm": "dpsgd",
    "topology": "line",
    "delivery": "plain",
    "wait": {"for": "all", "deadline": "none"},
    "links": {"default": {"latency": "50ms", "uplink": {"rate": "2Mbit", "queue": "25kB"}}},
}
HALF = {"links": {"default": {"latency": "50ms", "uplink": {"rate": "1Mbit", "queue": "25kB"}}}}
CHANGES: dict[str, tuple[dict[str, Any], float]] = {
    "as it was": ({}, 1.0),
    "half the bandwidth": (HALF, 0.5),
    "twice the nodes": ({"nodes": 8}, 1.0),
    "a ring": ({"topology": "ring"}, 1.0),
    "every node with every other": ({"topology": "full"}, 1.0),
    "twice the nodes on a ring, half the bandwidth": ({"nodes": 8, "topology": "ring"} | HALF, 0.5),
}
"""What is changed, in the scenario of the real fleet, and by how much the twin's rates are multiplied."""
FIT, TABLE = ("<!-- fit -->\n", "<!-- end of fit -->"), ("<!-- table -->\n", "<!-- end of table -->")


def median_round(found: Run) -> float:
    """Return the median time of a round in seconds, over the fleet's rounds but the first."""
    if found.result["time"] is None:
        raise SystemExit(f"{found.path.name}: {found.result['verdict']}, {found.result.get('reasons')}")
    median = found.result["time"]["rounds"]["median_s"][1:]
    return float(sorted(median)[len(median) // 2])


def seconds(document: dict[str, Any], folder: Path) -> float:
    """Run a scenario; return its median round."""
    return median_round(open_run(run(load(document), out=folder, page=False).path))


def foreseen(twin: Twin, change: dict[str, Any], factor: float, folder: Path) -> Iterator[float]:
    """Yield the median rounds of the twin under a change: with the fitted figures, and with all at either end."""
    others = {key: value for key, value in change.items() if key != "links"}
    for name, end in (("fitted", 0), ("fast", 1), ("slow", -1)):
        yield seconds(pace(twin, factor, end) | others, folder / name)


def rows(rounds: int, folder: Path) -> tuple[Fit, list[list[str]], list[tuple[str, str, str]]]:
    """Return the fit, the rows of the table, and those of the fit."""
    base = BASE | {"rounds": rounds}
    first = run(load(base), out=folder / "base", page=False)
    twin = make_twin(first.path)
    table = []
    for number, (name, (change, factor)) in enumerate(CHANGES.items()):
        fitted, fast, slow = foreseen(twin, change, factor, folder / f"twin-{number}")
        real = seconds(base | change, folder / f"real-{number}")
        table.append([name, f"{fitted:.3f}", f"{fast:.3f} to {slow:.3f}", f"{real:.3f}", f"{fitted / real - 1:+.1%}"])
        print(table[-1], file=sys.stderr, flush=True)
    return twin.fit, table, twin.rows()


def main() -> None:
    """Fit, foresee, run, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, table, fit = rows(args.rounds, Path(folder))
    heads = ["change", "foreseen, s", "its range, s", "in `namespaces`, s", "error"]
    texts = [_table(["figure", "fitted", "interval of 95 %"], [list(row) for row in fit]), _table(heads, table)]
    print("\n".join(texts))
    print(about(f"{args.rounds} rounds"), file=sys.stderr)
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        for (begin, end), text in zip((FIT, TABLE), texts, strict=True):
            before, _, rest = page.partition(begin)
            page = before + begin + "\n" + text + "\n" + end + rest.partition(end)[2]
        PAGE.write_text(page, encoding="utf-8")


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    main()
