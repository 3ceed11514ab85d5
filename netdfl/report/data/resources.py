"""The use of CPU, memory and GPU memory by a run's processes, on one axis of real time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netdfl.record.resources import EVERY_S
from netdfl.record.run import Run
from netdfl.report.data.frame import FIGURE, TIME, Floats, Made, shorten, whole

MOST_PROCESSES = 40
"""The most processes that are shown: those that took the most CPU time during the run."""
MOST_POINTS = 300


def resources(run: Run) -> Made | None:
    """Return the use of resources by process over time: cores, bytes of memory, bytes of GPU memory.

    `total` is the sum over all processes, including those that are not shown. Values between samples are interpolated.
    None if the run has no samples.
    """
    order = "SELECT process FROM resources GROUP BY process ORDER BY max(cpu_s) - min(cpu_s) DESC, process"
    names = [name for (name,) in run.rows(order)]
    table = run.columns(
        "SELECT list_position(?, process) - 1 AS process, pid, at_s, cpu_s, memory_bytes, gpu_bytes FROM resources "
        "ORDER BY process, pid, at_s",
        [names],
    )
    at_s = table["at_s"]
    if not len(at_s) or at_s.max() <= at_s.min():
        return None
    points = int(np.clip(np.ceil((at_s.max() - at_s.min()) / EVERY_S) + 1, 2, MOST_POINTS))
    grid = np.linspace(at_s.min(), at_s.max(), points)
    found = [_of_process(grid, table, table["process"] == place) for place in range(len(names))]
    shown = found[:MOST_PROCESSES]
    return {
        "at_s": shorten(grid, TIME),
        "processes": [{"name": name, **_plain(each)} for name, each in zip(names, shown, strict=False)],
        "total": _plain([_sum([each[place] for each in found]) for place in range(3)]),
        "num_processes": len(names),
    }


def _of_process(
    grid: Floats, table: dict[str, Floats], mine: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> list[Floats]:
    """Return the use of resources of one process: cores, bytes of memory and bytes of GPU memory, one array each.

    The arrays have a value for each time in `grid`, NaN while the process did not run. `mine` marks the rows of the
    process in `table`; they may have several process ids, one for each time that it was started.
    """
    lives = []
    for pid in np.unique(table["pid"][mine]):
        rows = mine & (table["pid"] == pid)
        at_s, width = table["at_s"][rows], grid[1] - grid[0]
        inside = (grid >= at_s[0] - width / 2) & (grid <= at_s[-1] + width / 2)
        spent = np.interp(grid, at_s, table["cpu_s"][rows])
        cores = np.append(np.nan, np.diff(spent) / np.diff(grid))
        memory, gpu = (np.interp(grid, at_s, table[name][rows]) for name in ("memory_bytes", "gpu_bytes"))
        lives.append([np.where(inside, each, np.nan) for each in (cores, memory, gpu)])
    return [_sum([life[place] for life in lives]) for place in range(3)]


def _sum(parts: Sequence[Floats]) -> Floats:
    """Return the sum of arrays element by element, with NaN counted as 0; NaN where all are NaN."""
    stacked = np.asarray(parts)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def _plain(values: Sequence[Floats]) -> Made:
    cores, memory, gpu = values
    return {
        "cores": shorten(cores, FIGURE),
        "memory_bytes": whole(np.round(memory)),
        "gpu_bytes": None if np.isnan(gpu).all() else whole(np.round(gpu)),
    }
