"""A run that finishes or is killed at a random moment, and what is left of it on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from netdfl.testing.leftovers import MARK, Look, left_over, marked, network

ENDS = ("finish", "kill")
LATEST_S = 20.0


def run_and_look(
    scenario: str,
    end: str,
    delay_s: float,
    *options: str,
    after_kill: Callable[[], object] = lambda: None,
    more: Look = dict,
) -> str | None:
    """Run a scenario until its `end`, which is `finish`, or `kill` after `delay_s`; what is wrong then, or None.

    Ten seconds later no process of it may be there, nothing on the host's network that was not there before,
    and nothing of what `more` finds.
    """
    before, mark = network(), uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as directory:
        code = _run(Path(directory), scenario, mark, options, delay_s if end == "kill" else None)
        if end == "kill":
            after_kill()
        left = left_over(lambda: {"processes": {str(pid) for pid in marked(mark)}, **network(), **more()}, before)
    if code != (0 if end == "finish" else -signal.SIGKILL):
        return f"exit code {code} ({end})"
    return f"{end} after {delay_s:.2f} s: {left}" if left else None


def _run(directory: Path, scenario: str, mark: str, options: tuple[str, ...], kill_after_s: float | None) -> int:
    file = directory / "cleanup.yaml"
    file.write_text(scenario)
    command = [sys.executable, "-m", "netdfl.cli", "run", str(file), f"--out={directory}/run", *options]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {MARK: mark})
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        run.send_signal(signal.SIGKILL)
    return run.wait(600)
