"""What a study costs on an engine: `python benchmarks/studies.py [ray] [slurm] [--rounds 40]`.

Twelve runs of a small training, two at a time: once with `--jobs 2` in processes of this machine, and once by each
engine with `--jobs 2`. Ray is one of its own on this machine; Slurm is the cluster whose `sbatch` is found. All
use the same cores, so the ratio of wall times is what the engine adds. Checks that all runs have the same event log.

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import Row, show

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 1800
STUDY: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "name": "studied",
    "nodes": 8,
    "world": "simulated",
    "task": {"dataset": "digits", "model": {"name": "mlp", "hidden": [32]}},
    "algorithm": {"name": "dfedavg", "lr": 0.05, "local_epochs": 1},
    "topology": "ring",
}


def sweep(folder: Path, runner: str) -> tuple[float, list[str]]:
    """Return the seconds of the study by `runner`, and the event logs of its runs."""
    file, out = folder / "studied.yaml", folder / runner
    words = ["--vary", "algorithm.lr=0.05,0.1,0.2", "--seeds", "4", "--jobs", "2", "--runner", runner]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "netdfl", "sweep", str(file), "--out", str(out), *words],
        env=environment, check=True, stdout=sys.stderr, timeout=TIMEOUT_S,
    )  # fmt: skip
    took_s = time.monotonic() - begun
    results = sorted(out.glob("*/cells/*/result.json"))
    return took_s, [json.loads(each.read_text())["event_log_hash"] for each in results]


def main() -> None:
    """Print one row for each engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="*", default=["ray"], choices=["ray", "slurm"])
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "studied.yaml").write_text(json.dumps({**STUDY, "rounds": args.rounds}))
        local_s, logs = sweep(folder, "local")
        assert len(logs) == 12, logs
        rows = []
        for engine in args.engines:
            took_s, of_engine = sweep(folder, engine)
            assert of_engine == logs, f"{engine} gave other event logs"
            rows.append(
                Row(f"12 runs by {engine}", round(took_s, 1), "s", "--jobs 2", round(local_s, 1), took_s / local_s)
            )
    show(rows, f"{args.rounds} rounds a run")


if __name__ == "__main__":
    main()
