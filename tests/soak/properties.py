"""Every property, of a thousand examples in place of CI's few: `python -m tests.soak.properties`.

A trial is a module of tests, with another seed in each round of all of them. Where a test says itself how many examples
it wants, that holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

from tests.conftest import EXAMPLES
from tests.soak.tally import ROOT, main

MODULES = sorted(file for file in (ROOT / "tests").rglob("test_*.py") if "@given(" in file.read_text(encoding="utf-8"))


def trial(rng: Random, number: int) -> str | None:
    """Run one module; the names of the tests that failed."""
    file = MODULES[number % len(MODULES)].relative_to(ROOT)
    seed = f"--hypothesis-seed={rng.randrange(10**6)}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3000", seed, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {EXAMPLES: "many"})
    failed = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(failed) or (None if done.returncode == 0 else f"{file}: {done.stdout[-300:]}")


if __name__ == "__main__":
    main("properties hold of a thousand examples, by modules of tests", trial, len(MODULES))
