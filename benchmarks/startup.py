"""How long a fleet takes to start, and what a node process weighs.

    python benchmarks/startup.py [--nodes 16] [--repeats 3]

Start-up is the time from the command to the first round that a node finished, beside the import of
torch alone. Memory is the proportional set size (PSS) of a node process while the fleet runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import Row, show

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def fleet(nodes: int, rounds: int) -> Iterator[Path]:
    """A quickstart fleet under way; its run directory."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        sets = [f"--set=nodes={nodes}", f"--set=rounds={rounds}", "--set=evaluation.every=1000000"]
        command = [sys.executable, "-m", "netdfl.cli", "run", str(ROOT / "scenarios/quickstart.yaml"), f"--out={out}"]
        run = subprocess.Popen([*command, *sets], stdout=subprocess.DEVNULL)
        try:
            yield out
        finally:
            run.terminate()
            run.wait()


def start_up(nodes: int) -> float:
    """Seconds from the command to the first round done."""
    began = time.monotonic()
    with fleet(nodes, 100_000) as out:
        while not any(path.stat().st_size for path in (out / "store").glob("metrics-0*.jsonl")):
            time.sleep(0.01)
        return time.monotonic() - began


def memory(nodes: int) -> list[float]:
    """Megabytes of PSS of each node process, a few seconds into the run."""
    with fleet(nodes, 100_000) as out:
        time.sleep(8)
        pids = [node["pid"] for node in json.loads((out / "fleet.json").read_text())["nodes"]]
        return [_pss(pid) for pid in pids]


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def import_torch() -> float:
    """Seconds to import torch in a fresh process."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - began


def main() -> None:
    """Print a JSON list of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    pairs = [(start_up(args.nodes), import_torch()) for _ in range(args.repeats)]
    own, alone = (statistics.median(values) for values in zip(*pairs, strict=True))
    pss = memory(args.nodes)
    figures = [
        ("start-up, command to first round", own, "s", "import torch alone", alone),
        ("PSS of a node process, mean", statistics.mean(pss), "MB", "target", 150.0),
        ("PSS of a node process, largest", max(pss), "MB", "target", 150.0),
    ]
    show(
        [Row(*figure, figure[1] / figure[4]) for figure in figures],
        f"start-up: medians of {args.repeats}; PSS: one run",
    )


if __name__ == "__main__":
    main()
