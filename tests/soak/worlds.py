"""The whole suite of worlds in containers, of which CI leaves some checks out: `python -m tests.soak.worlds`."""

from __future__ import annotations

import subprocess
import sys
from random import Random

from tests.soak.tally import ROOT, main

SUITE = "tests/containers/test_suite_in_containers.py"


def trial(rng: Random, number: int) -> str | None:
    """Run it once; the names of the checks that failed, or that all were skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "soak or not soak", "-p", "no:cacheprovider", SUITE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [""]
    failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(failed) or (None if "passed" in lines[-1] and done.returncode == 0 else lines[-1])


if __name__ == "__main__":
    main("worlds: the whole suite in containers", trial, 1)
