"""Every method of the catalog trains on digits in real processes, six clients and two rounds, and passes.

python -m tests.soak.every_method

Its models are those of the simulated world, bit for bit, but for `ad_psgd` and `asyng`, where real time says what is
mixed. CI has one method of each family and mixing. A trial more than there are methods begins again, with another seed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.host.models import read_snapshot
from netdfl.testing.contract import equal
from netdfl.testing.rounds import in_step
from tests.soak.tally import ROOT, main

sys.path.insert(0, str(ROOT / "tests" / "algorithms"))
from method_scenarios import scenario

METHODS = tuple(ALGORITHMS)
_LIMIT_S = 900


def trial(rng: Random, number: int) -> str | None:
    """One run."""
    name = METHODS[number % len(METHODS)]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "scenario.yaml"
        keep = {"every": 2, "local": "none", "keep_models": True}
        file.write_text(json.dumps(scenario(name, seed=rng.randrange(10**6), evaluation=keep)))
        outs = {world: Path(directory) / world for world in ("processes", "simulated")}
        wrong = next(filter(None, (_run(file, world, out) for world, out in outs.items())), None)
        if wrong is not None:
            return f"{name} {wrong}"
        same = not in_step(ALGORITHMS[name].build(Exchange())) or equal(*map(models, outs.values()))
        return None if same else f"{name} has other models in the simulated world than in processes"


def _run(file: Path, world: str, out: Path) -> str | None:
    """Run the scenario; what went wrong."""
    command = [sys.executable, "-m", "netdfl.cli", "run", str(file), "--on", world, "--out", str(out), "--no-page"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"is still running in {world} after {_LIMIT_S} s"
    said = (done.stdout + done.stderr)[-500:]
    return None if done.returncode == 0 else f"exits {done.returncode} in {world}: {said}"


def models(out: Path) -> dict[str, object]:
    """Every node's model and weight at the end."""
    return {path.name: read_snapshot(path) for path in sorted((out / "models").iterdir())}


if __name__ == "__main__":
    main("every method in processes", trial, len(METHODS))
