"""Modules of tests of which CI runs a sample, each in full: `python -m tests.soak.in_full`.

A module is one of them by its first test with `pytest.mark.soak`, unless another command runs it.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from random import Random

from tests.soak.machines import LONG
from tests.soak.tally import ROOT, main

BY_PYTEST = {"tests/diagnosis/test_healthy_in_processes.py": "docs/diagnosis.md"}
"""A module that pytest itself repeats, and the page with its command."""
MARKS = "mark.soak", "RARELY", "on_a_phone_in_full"


@cache
def marked() -> list[str]:
    """The modules that have tests for the soak."""
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    return [module for module, text in texts.items() if any(mark in text for mark in MARKS)]


def sampled() -> list[str]:
    """Those of them that no other command runs."""
    others = {*BY_PYTEST, *(f"tests/machines/test_{module}.py" for module in LONG)}
    return [module for module in marked() if module not in others]


def trial(rng: Random, number: int) -> str | None:
    """Run one of them; the names of the tests that failed, or that all were skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "soak or not soak", "-p", "no:cacheprovider"]
    modules = sampled()
    done = subprocess.run([*command, modules[number % len(modules)]], cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [""]
    failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(failed) or (None if "passed" in lines[-1] and done.returncode == 0 else lines[-1])


if __name__ == "__main__":
    words = f"tests of which CI runs a sample, in full: {len(sampled())} modules"
    main(words, trial, len(sampled()))
