"""Every method of the catalog settles where numpy says, on quadratics that disagree, in `simulated` and `processes`.

python -m tests.soak.known_points simulated
python -m tests.soak.known_points processes

The points, most of them away from the optimum, are in `tests/algorithms/known_points.py`; every node's final model is
compared with its own. CI has a few methods in `simulated`. A trial more than there are methods begins again, with
another seed, and so with other centers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from random import Random

from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.soak.tally import ROOT, main

sys.path.insert(0, str(ROOT / "tests" / "algorithms"))
from known_points import KNOWN, distance, scenario

METHODS = tuple(KNOWN)


def trial(world: str, rng: Random, number: int) -> str | None:
    """One run."""
    name = METHODS[number % len(METHODS)]
    asked = loads(json.dumps(scenario(name, seed=rng.randrange(10**6))), on=world)
    with tempfile.TemporaryDirectory() as folder:
        finished = run(asked, out=Path(folder) / "run", page=False)
        if finished.result["verdict"] not in ("pass", "done"):
            return f"{name} in {world}: {finished.result['verdict']}, {finished.result['reasons']}"
        off = distance(asked, finished.path)
    return None if off <= KNOWN[name].bound(world) else f"{name} in {world} ends {off:.2g} from its point"


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("simulated", "processes"):
        sys.exit("name the world: simulated or processes")
    where = sys.argv.pop(1)
    main(f"every method at its known point, {where}", partial(trial, where), len(METHODS))
