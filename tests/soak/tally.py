"""One line per proof: what was repeated, how often, how often it failed, and with what."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
TALLY = ROOT / "docs" / "soak.jsonl"


@dataclass(frozen=True)
class Count:
    """How often something was tried, and what went wrong in which trial."""

    count: int
    failures: list[str]


def repeat(trial: Callable[[Random, int], str | None], *, count: int, seed: int) -> Count:
    """Run `trial(rng, number)` `count` times; it returns what went wrong, or None."""
    failures = []
    for number in range(count):
        wrong = trial(Random(f"{seed}-{number}"), number)
        print(f"{number + 1}/{count}: {wrong or 'ok'}", flush=True)
        if wrong is not None:
            failures.append(f"{number}: {wrong}")
    return Count(count, failures)


def append(name: str, counted: Count, seed: int) -> None:
    """Append the line to docs/soak.jsonl."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    line = {
        "name": name,
        "count": counted.count,
        "failures": len(counted.failures),
        "what": counted.failures[:5],
        "seed": seed,
        "commit": commit.stdout.strip(),
        "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        "versions": {p: metadata.version(p) for p in ("netdfl", "torch", "grpcio")}
        | {"python": sys.version.split()[0]},
    }
    with TALLY.open("a") as file:
        file.write(json.dumps(line) + "\n")


def main(name: str, trial: Callable[[Random, int], str | None], count: int) -> None:
    """The command line of a proof: `--count`, `--seed`; exits 1 if a trial failed."""
    parser = argparse.ArgumentParser(description=name)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    counted = repeat(trial, count=args.count, seed=args.seed)
    append(name, counted, args.seed)
    sys.exit(bool(counted.failures))
