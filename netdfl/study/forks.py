"""The process that forks the processes of a study's runs. It imports all modules once, for all of them.

`python -m netdfl.study.forks PID` reads an order from stdin. For each ended run it writes a line with the run's
directory and exit code. It dies with process PID, which started it, and its runs die with it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from netdfl.core.process import die_with_parent
from netdfl.study.keeping import Manner
from netdfl.study.runners.base import CellOrder, StudyOrder
from netdfl.study.task import run_cell


def main() -> None:
    """Make the runs that the order on stdin lists."""
    running: dict[int, CellOrder] = {}

    def end(number: int, frame: FrameType | None) -> NoReturn:
        _end(running)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(int(sys.argv[1]))
    text = sys.stdin.read()
    if text:  # else who ordered died before
        order = StudyOrder.of_json(text)
        _preload(order.manner)
        _run_all(order, running)


def _run_all(study: StudyOrder, running: dict[int, CellOrder]) -> None:
    """Make all runs of the order; skip those that can't end in time, and report them with the code None.

    `running` has the order of each run under way, by its process id.
    """
    waiting = list(study.cells)
    while waiting or running:
        while waiting and len(running) < study.jobs:
            order = waiting.pop(0)
            if study.is_late(order):
                _say(order, None)
                continue
            running[_fork(order, study.jobs, study.manner)] = order
        if not running:
            continue
        pid, status = os.waitpid(-1, 0)
        if pid in running:
            _say(running.pop(pid), os.waitstatus_to_exitcode(status))


def _say(order: CellOrder, code: int | None) -> None:
    print(json.dumps([str(order.path), code]), flush=True)


def _end(running: dict[int, CellOrder]) -> None:
    """End every run under way at once; `running` has the orders of these runs by process id."""
    for pid, order in running.items():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if order.world == "containers" else signal.SIGKILL)
    for pid in running:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _fork(order: CellOrder, jobs: int, manner: Manner) -> int:
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(me)
    run_cell(order, jobs, manner)


def _preload(manner: Manner) -> None:
    """Import the modules that runs share, except grpc, because a process must not fork after importing it."""
    from netdfl.worlds import preload

    preload.warm()
    for name in ("netdfl.study.resumable", "duckdb"):
        importlib.import_module(name)
    if manner != "whole":
        importlib.import_module("netdfl.study.keeping").source_commit()  # that of the code which is imported now
    from netdfl.worlds.simulated.arithmetic import exact_arithmetic

    with exact_arithmetic():  # for what torch imports at its first use
        pass


if __name__ == "__main__":
    main()
