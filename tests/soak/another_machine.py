"""Run what was found, and small trained scenarios, on what differs between machines: the same event logs, bit for bit.

python -m tests.soak.another_machine [--image IMAGE ...]    # images of nodes; default: the one made last

Each trial is a machine: a container with another base system, Python, host name, user, time zone and locale, or a
process here; with a number of threads and the instructions of another processor: ATEN_CPU_CAPABILITY says which torch
takes, MKL_CBWR which MKL takes for products (COMPATIBLE, where it does not know the maker). It fails
where something else happened than here, of messages with their fates and times, waits and events; and where an event
log differs: of any scenario with the same instructions, of one that trains nothing with AVX2 or AVX-512. Other
instructions add the terms of sums in another order, those of matrix products in training above all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from tests.soak.tally import ROOT, append, repeat

FOUND, TRAINED = "scenarios/found", "scenarios/smoke"
WHAT, NO_VECTORS = ("event_log", "happened"), "DEFAULT"
NAME = "found scenarios repeat on another machine"
ELSEWHERE = {"TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "PYTHONHASHSEED": "7"}


@dataclass(frozen=True)
class Machine:
    """Where scenarios are run: in a container of `image`, or here; with these settings of the environment."""

    image: str
    settings: Mapping[str, str]

    def __str__(self) -> str:
        """In words."""
        told = ", ".join(f"{key}={value}" for key, value in self.settings.items() if key not in ELSEWHERE)
        return f"{self.image or 'here'} ({told})"

    def hashes(self, files: list[str]) -> dict[str, dict[str, str]]:
        """As `hashes`, there. Raises RuntimeError where they can't be run."""
        asked = ["-m", "tests.soak.another_machine", "--hashes", *files]
        settings = {**ELSEWHERE, **self.settings}
        if self.image:
            given = [part for key, value in settings.items() for part in ("--env", f"{key}={value}")]
            within = [
                "--rm",
                "--network=none",
                "--hostname=elsewhere",
                f"--volume={ROOT}:/opt/app:ro",
                "--workdir=/opt/app",
            ]
            command = ["docker", "run", *within, *given, "--entrypoint=python", self.image, *asked]
            settings = {}
        else:
            command = [sys.executable, *asked]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self} exits {done.returncode}: {done.stderr[-2000:]}")
        found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
        return found


def hashes(files: list[str]) -> dict[str, dict[str, str]]:
    """Of each scenario, run in this process: the hash of its event log, and that of what happened, without figures.

    Under no name is what ran them.
    """
    import platform

    import torch

    import netdfl
    from netdfl.explore.execute import Executor

    runs = f"Python {platform.python_version()}, torch {torch.__version__} on {platform.node()}"
    products = os.environ.get("MKL_CBWR", "")
    found = {"": {"runs": runs, "instructions": torch.backends.cpu.get_cpu_capability(), "products": products}}
    for file in files:
        run = Executor().run(netdfl.load(file, on="simulated"))
        trains = "yes" if run.scenario.task.kind not in ("consensus", "quadratic") else ""
        happened = repr((run.rows.messages, run.rows.waits, run.rows.events))
        hashed = {"event_log": run.event_log_hash or run.broke, "happened": sha256(happened.encode()).hexdigest()[:32]}
        hashed["trains"] = trains
        found[str(Path(file).resolve().relative_to(ROOT))] = hashed
    return found


def files_of(folder: str) -> list[str]:
    """The scenarios of a folder."""
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / folder).glob("*.yaml"))


def newest_image() -> str:
    """The node image that was made last. Raises RuntimeError where there is none."""
    asked = ["docker", "images", "--filter", "label=netdfl.image=node", "--format", "{{.Repository}}:{{.Tag}}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split() if "<none>" not in name]
    if not names:
        raise RuntimeError("there is no image of a node: `netdfl run scenarios/smoke/... --on containers` makes one")
    return names[0]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=NAME)
    parser.add_argument("--image", nargs="*", default=[])
    parser.add_argument("--hashes", nargs="+", metavar="FILE", help="print those of these scenarios, run here")
    args = parser.parse_args()
    if args.hashes:
        print(json.dumps(hashes(args.hashes)))
        return
    images = args.image or [newest_image()]
    settings = [
        {"OMP_NUM_THREADS": threads, "ATEN_CPU_CAPABILITY": capability, **products}
        for threads, capability, products in (
            *(("1", "avx512", {}), ("2", "avx2", {}), ("1", "default", {})),
            ("1", "avx2", {"MKL_CBWR": "COMPATIBLE"}),
        )
    ]
    machines = [Machine(image, each) for image in ["", *images] for each in settings]
    files = [*files_of(FOUND), *files_of(TRAINED)]
    here = hashes(files)

    def one(rng: Random, number: int) -> str | None:
        there = machines[number].hashes(files)
        print(f"{machines[number]}: {there['']}", flush=True)
        logs, happened = ([file for file in files if there[file][what] != here[file][what]] for what in WHAT)
        print(
            f"  other event logs: {', '.join(logs) or 'none'}; other things happened: {', '.join(happened) or 'none'}"
        )
        instructions = {there[""]["instructions"], here[""]["instructions"]}
        alike = len(instructions) == 1 and there[""]["products"] == here[""]["products"]
        held = [] if NO_VECTORS in instructions else [file for file in logs if alike or not here[file]["trains"]]
        wrong = sorted({*happened, *held})
        return f"{machines[number]}: {', '.join(wrong)}" if wrong else None

    counted = repeat(one, count=len(machines), seed=0)
    append(f"{NAME} ({len(files)} scenarios each)", counted, 0)
    sys.exit(bool(counted.failures))


if __name__ == "__main__":
    main()
