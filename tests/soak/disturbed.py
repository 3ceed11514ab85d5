"""When a measurement does not count, because the machine was too busy to send or to carry its messages in time."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
STEAL = 8
"""The place of the steal in a line of STAT; its name is at place 0."""


class DisturbedError(Exception):
    """The machine was too busy to send, or to carry, the messages in time."""


def stolen_s(stat: Path = STAT) -> float:
    """CPU time that the host of this virtual machine gave to others, in s since its start; 0 where nothing says so."""
    if not stat.exists():
        return 0.0
    of_all_cpus = stat.read_text(encoding="ascii").splitlines()[0].split()
    return int(of_all_cpus[STEAL]) / os.sysconf("SC_CLK_TCK") if len(of_all_cpus) > STEAL else 0.0
