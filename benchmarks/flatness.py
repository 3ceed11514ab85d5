"""How flat the minima are that methods with and without SAM find: what docs/studies/flatness.md shows.

    python benchmarks/flatness.py --out FOLDER [--seeds 3] [--rounds 300] [--write]

Each case is ten clients of Fashion-MNIST by the settings of paper 003, run with each seed and measured by what
`netdfl measure` makes: eigenvalues and trace of the Hessian, the loss along one random direction, normalized by filter,
and the gap between training and test. Runs and measurements lie in FOLDER, so an interrupted command goes on where it
was. Prints the tables; `--write` puts them into the page. About two minutes of one core for each run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from figures import about

import netdfl
from netdfl.measure.command import MEASURES, Settings, measure
from netdfl.running.models import open_run

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = ROOT / "scenarios" / "papers" / "003_t2_fashion_10.yaml"
PAGE = ROOT / "docs" / "studies" / "flatness.md"
BEGIN, END = "<!-- flatness -->", "<!-- end of flatness -->"
WHATS = ("sharpness", "landscape", "gap")
REACH = 0.5
"""How far along the direction the loss is compared, in norms of each filter."""
PLAIN = "compression=none"
ONE_CLASS = "task.dataset.partition={kind: pathological, classes_per_client: 1}"
RING = ("topology=ring", "task.dataset.partition={kind: dirichlet, alpha: 0.3}", PLAIN)
SAM = ("algorithm.rho=0.05",)
CASES: Mapping[str, tuple[str, ...]] = {
    "FedAvg": ("algorithm.name=fedavg", ONE_CLASS, PLAIN),
    "FedSAM": ("algorithm.name=fedsam", ONE_CLASS, PLAIN, *SAM),
    "FedAvg, 4 bits": ("algorithm.name=fedavg", ONE_CLASS),
    "FedSAM, 4 bits": ("algorithm.name=fedsam", ONE_CLASS, *SAM),
    "DFedAvg, ring": ("algorithm.name=dfedavg", *RING),
    "DFedSAM, ring": ("algorithm.name=dfedsam", *RING, *SAM),
}
"""Methods in pairs, without SAM and with it, and what they change in the scenario."""
FIGURES: Mapping[str, str] = {
    "eigenvalue": "largest eigenvalue",
    "trace": "trace",
    "rise": f"rise of the loss at ±{REACH}",
    "accuracy": "test accuracy",
    "gap": "training less test accuracy",
}
Figures = Mapping[str, float]


def figures(case: str, seed: int, out: Path, rounds: int) -> Figures:
    """Return what one run came to; make it, and its measurements, unless they are there."""
    folder = out / f"{case}, seed {seed}".replace(", ", "-").replace(" ", "_")
    if not (folder / "result.json").exists():
        sets = [f"seed={seed}", f"rounds={rounds}", f"evaluation.every={max(1, rounds // 6)}", *CASES[case]]
        netdfl.run(netdfl.load(SCENARIO, [*sets, "evaluation.keep_models=true"]), out=folder, page=False)
    for what in WHATS:
        if not (folder / MEASURES / f"{what}.json").exists():
            measure(open_run(folder), what, Settings(local=0, reach=REACH, points=3, grid=3), lambda line: None)
    found = {what: json.loads((folder / MEASURES / f"{what}.json").read_text()) for what in WHATS}
    sharp, gap = found["sharpness"]["models"]["average"], found["gap"]["models"]["average"]
    low, middle, high = found["landscape"]["lines"]["average"]
    return {
        "eigenvalue": sharp["eigenvalues"][0],
        "trace": sharp["trace"],
        "rise": (low + high) / 2 - middle,
        "accuracy": gap["test_accuracy"],
        "gap": gap["gap_accuracy"],
    }


def tables(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the table of all cases, and that of the differences in each pair, in Markdown."""
    head = ["case", *FIGURES.values()]
    rows = [[case, *(_spread(name, [each[name] for each in runs]) for name in FIGURES)] for case, runs in found.items()]
    pairs = [pair for number, pair in enumerate(pairwise(found)) if number % 2 == 0]
    compared = [
        [f"{flat} beside {sharp}", *(_compared(name, found[flat], found[sharp]) for name in FIGURES)]
        for sharp, flat in pairs
    ]
    return f"{_table(head, rows)}\n{_table(['pair', *FIGURES.values()], compared)}"


def _spread(name: str, values: Sequence[float]) -> str:
    """Return the mean of the seeds, and the lowest and the highest."""
    return f"{_said(name, fmean(values))} ({_said(name, min(values))} to {_said(name, max(values))})"


def _said(name: str, value: float) -> str:
    return f"{100 * value:.2f} %" if name in ("accuracy", "gap") else f"{value:.3g}"


def _compared(name: str, flat: Sequence[Figures], sharp: Sequence[Figures]) -> str:
    """Return the mean ratio, or difference in points, of runs with the same seed, and how many of them are lower."""
    pairs = [(one[name], other[name]) for one, other in zip(flat, sharp, strict=True)]
    lower = f"lower in {sum(one < other for one, other in pairs)} of {len(pairs)}"
    if name in ("accuracy", "gap"):
        return f"{100 * fmean(one - other for one, other in pairs):+.2f} points, {lower}"
    return f"{fmean(one / other for one, other in pairs):.2f} times, {lower}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


def measured(seeds: int, out: Path, rounds: int) -> Iterator[tuple[str, list[Figures]]]:
    """Yield each case with what its runs came to, seed by seed."""
    for case in CASES:
        runs = []
        for seed in range(seeds):
            runs.append(figures(case, seed, out, rounds))
            print(case, seed, json.dumps(runs[-1]), file=sys.stderr, flush=True)
        yield case, runs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    chosen: Any = parser.parse_args(arguments)
    text = tables(dict(measured(chosen.seeds, chosen.out, chosen.rounds)))
    print(text)
    print(about(f"{chosen.seeds} seeds, {chosen.rounds} rounds"), file=sys.stderr)
    if chosen.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
