"""Modules of tests of which CI runs a sample, each in full: `python -m tests.soak.in_full`."""

from __future__ import annotations

import subprocess
import sys
from random import Random

from tests.soak.tally import ROOT, main

SAMPLED = (
    "tests/algorithms/test_methods_in_processes.py",
    "tests/containers/test_containers.py",
    "tests/containers/test_suite_in_containers.py",
    "tests/docs/test_own_task_page.py",
    "tests/docs/test_tutorial.py",
    "tests/hostile/test_members_in_processes.py",
    "tests/hostile/test_strangers_of_a_fleet.py",
    "tests/hostile/test_table.py",
    "tests/hostile/test_wrong_messages.py",
    "tests/machines/test_ray.py",
    "tests/machines/test_slurm.py",
    "tests/machines/test_studies.py",
    "tests/report/test_hostile_run.py",
    "tests/report/test_page.py",
    "tests/running/test_own_mistakes.py",
    "tests/running/test_without_torch.py",
    "tests/scenario/test_hostile.py",
    "tests/scenarios/test_found.py",
    "tests/scenarios/test_under_loss.py",
    "tests/simulated/test_determinism.py",
    "tests/study/test_interrupt.py",
    "tests/study/test_reproduce.py",
    "tests/study/test_tuning.py",
    "tests/training/test_in_two_worlds.py",
    "tests/training/test_like_plain_torch.py",
    "tests/transport/test_large.py",
    "tests/worlds/test_suite_in_threads.py",
)


def trial(rng: Random, number: int) -> str | None:
    """Run one of them; the names of the tests that failed, or that all were skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "soak or not soak", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, SAMPLED[number % len(SAMPLED)]], cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [""]
    failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(failed) or (None if "passed" in lines[-1] and done.returncode == 0 else lines[-1])


if __name__ == "__main__":
    words = f"tests of which CI runs a sample, in full: {len(SAMPLED)} modules"
    main(words, trial, len(SAMPLED))
