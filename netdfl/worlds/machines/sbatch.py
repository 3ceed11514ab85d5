"""The script that submits a run to Slurm."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

_AGAIN = """
run={runs}/{name}-$SLURM_JOB_ID
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -e "$run/scenario.yaml" ]; then
    exec {netdfl} run --resume "$run"
fi
"""


def script(
    scenario: Path,
    name: str,
    machines: int,
    *,
    resumable: bool = False,
    rejoins: bool = False,
    sets: Sequence[str] = (),
    options: Sequence[str] = (),
) -> str:
    """A script that runs `scenario` on `machines` machines; `options` are more of sbatch's, `sets` of netdfl's.

    `resumable`: its nodes save checkpoints, so a job that is preempted and queued again goes on where it was.
    `rejoins`: the job outlives a machine that fails.
    """
    again = ["--requeue", "--open-mode=append"] if resumable else ["--no-requeue"]
    again += ["--no-kill"] if rejoins else []
    wanted = [f"--job-name={name}", f"--nodes={machines}", "--ntasks-per-node=1", f"--output={name}-%j.log", *again]
    netdfl = shlex.join([sys.executable, "-m", "netdfl"])
    set_ = [word for each in sets for word in ("--set", each)]
    command = shlex.join(["run", str(scenario.resolve()), "--on", "slurm", *set_])
    place = _AGAIN.format(runs=shlex.quote(str(Path("runs").resolve())), name=shlex.quote(name), netdfl=netdfl)
    lines = [f"#SBATCH {option}" for option in (*wanted, *options)]
    out = ' --out "$run"' if resumable else ""
    return "\n".join(["#!/bin/sh", *lines, place if resumable else "", f"exec {netdfl} {command}{out}", ""])
