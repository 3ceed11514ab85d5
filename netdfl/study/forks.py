"""The process that forks the cells of a grid: it has imported everything, so a cell costs only its own work.

`python -m netdfl.study.forks PID` reads an order from stdin, and writes a line for each ended cell: its path and exit
code. It dies with process PID, which started it, and its cells with it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from netdfl.core.errors import InputError, NetdflError
from netdfl.core.process import die_with_parent
from netdfl.study.keeping import FINISHED, MOST_CPU_S, Manner

UNUSABLE, BROKE = 2, 4
CellOrder = dict[str, Any]
"""A cell: its `scenario` file, its overrides `sets`, the `path` of its run, its `world`, about what it costs."""


def main() -> None:
    """Run the cells that stdin orders."""
    running: dict[int, CellOrder] = {}

    def end(number: int, frame: FrameType | None) -> NoReturn:
        _end(running)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(int(sys.argv[1]))
    text = sys.stdin.read()
    if text:  # else who ordered died before
        order = json.loads(text)
        _preload(order["manner"])
        _run_all(order, running)


def path_beside(run: Path, kind: str) -> Path:
    """Return the file of a kind (`log`, `exit`) beside a run."""
    return run.with_name(f"{run.name}.{kind}")


def _run_all(study: dict[str, Any], running: dict[int, CellOrder]) -> None:
    """Run all cells of the order; those that can't end in time are left out, which their line says."""
    waiting, jobs, until = study["cells"], study["jobs"], study["until"]
    while waiting or running:
        while waiting and len(running) < jobs:
            order = waiting.pop(0)
            if until is not None and time.time() + order["cost_s"] > until:
                print(json.dumps([order["path"], None]), flush=True)
                continue
            running[_fork(order, jobs, study["manner"])] = order
        if not running:
            continue
        pid, status = os.waitpid(-1, 0)
        if pid in running:
            print(json.dumps([running.pop(pid)["path"], os.waitstatus_to_exitcode(status)]), flush=True)


def _end(running: dict[int, CellOrder]) -> None:
    """End every cell at once; its nodes die with it. Only containers must be ended by Docker."""
    for pid, order in running.items():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if order["world"] == "containers" else signal.SIGKILL)
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
    _run(Path(order["scenario"]), order["sets"], Path(order["path"]), jobs, manner)


def _run(scenario: Path, sets: list[str], path: Path, jobs: int, manner: Manner) -> NoReturn:
    code = BROKE
    try:
        if manner == "background":
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        path_beside(path, "exit").unlink(missing_ok=True)
        log = os.open(path_beside(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from netdfl.study.resumable import drop_checkpoints, run_or_resume

        code = run_or_resume(scenario, sets, path, jobs, manner)
        path_beside(path, "exit").write_text(f"{code}\n", encoding="utf-8")
        if code in FINISHED:
            drop_checkpoints(path)
    except NetdflError as error:
        print(error, file=sys.stderr)
        code = UNUSABLE if isinstance(error, InputError) else BROKE
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if code not in FINISHED:
            with suppress(OSError):
                path_beside(path, "exit").write_text(f"{code}\n", encoding="utf-8")
        os._exit(code)


def _preload(manner: Manner) -> None:
    """Import modules that cells share, except grpc, after which no process may fork."""
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
