"""Runs in namespaces, half of them killed at a random moment: no process, namespace, device or socket stays.

python -m tests.soak.namespaces_cleanup --count 50
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from random import Random

from tests.soak.tally import main

SCENARIO = """
schema: netdfl/1
name: cleanup
nodes: 4
rounds: {rounds}
world: namespaces
task: {{kind: quadratic, dim: 2000}}
algorithm: {{name: lian_dpsgd, lr: 0.1}}
topology: ring
wait: {{deadline: 30s}}
links: {{default: {{latency: 2ms, rate: 10Mbit, loss: 1%}}}}
evaluation: {{every: 1000}}
"""
ENDS = ("finish", "kill")
LATEST_S = 20.0
DOCKERS = re.compile(r"docker0|br-[0-9a-f]{12}|veth[0-9a-f]{7}")
MARK = "NETDFL_SOAK_MARK"


def trial(rng: Random, number: int) -> str | None:
    """One run: finished, or killed before or after the network is made."""
    end, delay = ENDS[number % 2], rng.uniform(0.2, LATEST_S)
    before, mark = host(), uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "cleanup.yaml"
        file.write_text(SCENARIO.format(rounds=20 if end == "finish" else 100_000))
        command = [sys.executable, "-m", "netdfl.cli", "run", str(file), f"--out={directory}/run"]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {MARK: mark})
        if end == "kill":
            time.sleep(delay)
            run.send_signal(signal.SIGKILL)
        code = run.wait(600)
        left = _left(mark, before)
    if code != (0 if end == "finish" else -signal.SIGKILL):
        return f"exit code {code} ({end})"
    return f"killed after {delay:.2f} s: {left}" if left else None


def _left(mark: str, before: dict[str, set[str]]) -> str:
    """What is still there ten seconds after the end; empty for nothing."""
    until = time.monotonic() + 10
    while True:
        processes = marked(mark)
        more = {what: now - before[what] for what, now in host().items() if now - before[what]}
        if not processes and not more:
            return ""
        if time.monotonic() > until:
            return f"processes {processes}, {more}"
        time.sleep(0.1)


def marked(mark: str) -> list[int]:
    """The processes that a run started, found by what their environment holds."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def host() -> dict[str, set[str]]:
    """What a run might leave on the host's network: devices, named namespaces, routes; but for what is Docker's."""
    named = Path("/run/netns")
    return {
        "devices": {name for name in os.listdir("/sys/class/net") if not DOCKERS.match(name)},
        "named namespaces": set(os.listdir(named)) if named.is_dir() else set(),
        "routes": {line for line in Path("/proc/net/route").read_text().splitlines() if not DOCKERS.match(line)},
    }


if __name__ == "__main__":
    main("namespaces: nothing is left", trial, 50)
