"""Machines that die, come back, are cut off, or are nobody's: `python -m tests.soak.machines [PART...]`.

A trial is the tests of one module of `tests/machines` that take long: on separated machines, under real Slurm and Ray
where these are installed, and by hand. `PART` is a module's name without `test_`; without any all have their turn.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random

from tests.soak.tally import ROOT, append, repeat

LONG = ("machines", "by_hand_on_machines", "machines_page", "machines_that_die", "preempted", "suite_on_machines")


def trial(module: str) -> str | None:
    """Run a module's once; the names of those that failed, or that all were skipped."""
    file = f"tests/machines/test_{module}.py"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "soak", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    failed = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = (done.stdout.strip().splitlines() or [""])[-1]
    none = "" if "passed" in last else f"none passed: {last}"
    return "; ".join(failed) or none or (None if done.returncode == 0 else done.stdout[-300:])


def main(asked: list[str]) -> None:
    """Try the modules that are asked for, and write down how many failed."""
    modules = [each for each in LONG if not asked or each in asked]
    if not modules:
        sys.exit(f"expected some of {', '.join(LONG)}, got {', '.join(asked)}")

    def one(rng: Random, number: int) -> str | None:
        return trial(modules[number])

    counted = repeat(one, count=len(modules), seed=1)
    append(f"machines: {', '.join(modules)}", counted, 1)
    sys.exit(bool(counted.failures))


if __name__ == "__main__":
    main(sys.argv[1:])
