"""Runs in containers, half of them killed at a random moment: after the next run's sweep nothing of them is left.

python -m tests.soak.containers --count 50
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from random import Random

from netdfl.fleet.containers import LAUNCHER, sweep
from netdfl.fleet.containers_docker import Docker
from tests.soak.namespaces_cleanup import MARK, host, marked
from tests.soak.tally import main

SCENARIO = """
schema: netdfl/1
name: cleanup
nodes: 3
rounds: {rounds}
world: containers
task: {{kind: quadratic, dim: 200}}
algorithm: {{name: lian_dpsgd, lr: 0.1}}
topology: full
wait: {{deadline: 30s}}
links: {links}
evaluation: {{every: 1000000}}
"""
LINKS = ("{default: {latency: 2ms, rate: 10Mbit, loss: 1%}}", "{}")
ENDS = ("finish", "kill")
LATEST_S = 20.0


def trial(rng: Random, number: int) -> str | None:
    """One run, over the forwarder or a bridge: finished, or killed between its first second and its rounds."""
    end, delay, links = ENDS[number % 2], rng.uniform(0.5, LATEST_S), LINKS[number // 2 % 2]
    before, mark = host(), uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "cleanup.yaml"
        file.write_text(SCENARIO.format(rounds=20 if end == "finish" else 1_000_000, links=links))
        command = [sys.executable, "-m", "netdfl.cli", "run", str(file), f"--out={directory}/run", "--no-page"]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {MARK: mark})
        if end == "kill":
            time.sleep(delay)
            run.send_signal(signal.SIGKILL)
        code = run.wait(600)
        if end == "kill":
            asyncio.run(_sweep())
        left = _left(mark, before)
    if code != (0 if end == "finish" else -signal.SIGKILL):
        return f"exit code {code} ({end})"
    return f"{end} after {delay:.2f} s: {left}" if left else None


async def _sweep() -> None:
    """What the next run does first."""
    await sweep(await Docker.find(), print)


def _left(mark: str, before: dict[str, set[str]]) -> str:
    """What is still there ten seconds after the end; empty for nothing."""
    until = time.monotonic() + 10
    while True:
        labelled = ["--quiet", "--filter", f"label={LAUNCHER}"]
        found = {
            "containers": _said("docker", "ps", "--all", *labelled),
            "networks": _said("docker", "network", "ls", *labelled),
            "processes": " ".join(map(str, marked(mark))),
            **{what: " ".join(now - before[what]) for what, now in host().items()},
        }
        found = {what: names for what, names in found.items() if names}
        if not found:
            return ""
        if time.monotonic() > until:
            return str(found)
        time.sleep(0.2)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main("containers: nothing is left", trial, 50)
