"""The script that submits a run to Slurm."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def script(scenario: Path, name: str, machines: int, *, sets: Sequence[str] = (), options: Sequence[str] = ()) -> str:
    """A script that runs `scenario` on `machines` machines; `options` are more of sbatch's, `sets` of netdfl's."""
    wanted = [f"--job-name={name}", f"--nodes={machines}", "--ntasks-per-node=1", f"--output={name}-%j.log", *options]
    set_ = [word for each in sets for word in ("--set", each)]
    command = [sys.executable, "-m", "netdfl", "run", str(scenario.resolve()), "--on", "slurm", *set_]
    return "\n".join(["#!/bin/sh", *(f"#SBATCH {option}" for option in wanted), "", f"exec {shlex.join(command)}", ""])
