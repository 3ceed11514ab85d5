"""Kill one node of ten at a random moment: the run must end by itself, and name it.

python -m tests.soak.kill_a_node --count 20
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.soak.tally import ROOT, main

SETS = ("nodes=10", "rounds=200", "evaluation.every=50", "evaluation.local=none")
DETECTORS = ("oracle", "none")


def trial(rng: Random, number: int) -> str | None:
    """One killed run; with and without a failure detector in turn."""
    victim, delay, detector = rng.randrange(10), rng.uniform(0.0, 1.0), DETECTORS[number % 2]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        sets = [f"--set={s}" for s in (*SETS, f"failure_detector.kind={detector}")]
        command = [
            sys.executable,
            "-m",
            "netdfl.cli",
            "run",
            str(ROOT / "scenarios/quickstart.yaml"),
            f"--out={out}",
            *sets,
        ]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            if not _kill(out, victim, delay, run):
                return f"node {victim} could not be killed while it ran"
            code = run.wait(180)
        except subprocess.TimeoutExpired:
            return f"still running 180 s after node {victim} was killed ({detector})"
        finally:
            run.kill()
        return _wrong(out, code, victim)


def _kill(out: Path, victim: int, delay: float, run: subprocess.Popen[bytes]) -> bool:
    while run.poll() is None:
        status = _status(out, victim)
        if status.get("phase") == "running" and status["round"] >= 1:
            time.sleep(delay)
            os.kill(status["pid"], signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


def _status(out: Path, victim: int) -> dict:
    try:
        fleet = json.loads((out / "fleet.json").read_text())
    except FileNotFoundError:
        return {}
    return next((node for node in fleet["nodes"] if node["node"] == victim), {})


def _wrong(out: Path, code: int, victim: int) -> str | None:
    result = json.loads((out / "result.json").read_text())
    died = [d["node"] for d in result["died"]]
    if code != 1 or died != [victim]:
        return f"exit code {code}, died {died}, expected 1 and [{victim}]: {result['reasons']}"
    if "SIGKILL" not in result["died"][0]["reason"]:
        return f"reason {result['died'][0]['reason']!r} does not name the signal"
    return None


if __name__ == "__main__":
    main("kill one node of ten", trial, 20)
