"""A run that finishes or is killed at a random moment, and what is left of it on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

ENDS = ("finish", "kill")
LATEST_S = 20.0
DOCKERS = re.compile(r"docker0|br-[0-9a-f]{12}|veth[0-9a-f]{7}")
MARK = "NETDFL_SOAK_MARK"

Look = Callable[[], Mapping[str, object]]


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
    before, mark = host(), uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as directory:
        code = _run(Path(directory), scenario, mark, options, delay_s if end == "kill" else None)
        if end == "kill":
            after_kill()
        left = _left(lambda: {"processes": marked(mark), **_new(before), **more()})
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


def _left(look: Look) -> Mapping[str, object]:
    """What is still there after ten seconds; empty as soon as there is nothing."""
    until = time.monotonic() + 10
    while left := {what: found for what, found in look().items() if found}:
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    return left


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


def _new(before: Mapping[str, set[str]]) -> dict[str, set[str]]:
    return {what: now - before[what] for what, now in host().items()}
