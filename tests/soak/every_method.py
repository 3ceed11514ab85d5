"""Every method of the catalog trains on digits in real processes, six clients and two rounds, and passes.

python -m tests.soak.every_method

CI has one method of each family and mixing. A trial more than there are methods begins again, with another seed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from netdfl.algorithms.catalog import ALGORITHMS
from tests.soak.tally import ROOT, main

sys.path.insert(0, str(ROOT / "tests" / "algorithms"))
from method_scenarios import scenario

METHODS = tuple(ALGORITHMS)
_LIMIT_S = 900


def trial(rng: Random, number: int) -> str | None:
    """One run."""
    name = METHODS[number % len(METHODS)]
    with tempfile.TemporaryDirectory() as directory:
        file, out = Path(directory) / "scenario.yaml", Path(directory) / "run"
        file.write_text(json.dumps(scenario(name, seed=rng.randrange(10**6), world={"kind": "processes"})))
        command = [sys.executable, "-m", "netdfl.cli", "run", str(file), "--out", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"{name}: still running after {_LIMIT_S} s"
        said = (done.stdout + done.stderr)[-500:]
        return None if done.returncode == 0 else f"{name} exits {done.returncode}: {said}"


if __name__ == "__main__":
    main("every method in processes", trial, len(METHODS))
