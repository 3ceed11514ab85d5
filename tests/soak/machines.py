"""Machines that die, come back, are cut off, or are nobody's: `python -m tests.soak.machines [--count N]`.

A trial is all tests of `tests/machines` that take long: on separated machines, under real Slurm and Ray where these are
installed, and by hand.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random

from tests.soak.tally import ROOT, main


def trial(rng: Random, number: int) -> str | None:
    """Run them once; the names of those that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "soak", "-p", "no:cacheprovider", "tests/machines"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    failed = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(failed) or (None if done.returncode == 0 else done.stdout[-300:])


if __name__ == "__main__":
    main("machines", trial, 1)
