"""The process that forks the cells of a grid: it has imported everything, so a cell costs what it computes.

`python -m netdfl.study.forks` reads an order from stdin, and writes a line for each cell that ended:
its path and exit code. It dies with the process that started it, and its cells with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from netdfl.core.errors import InputError, NetdflError
from netdfl.fleet.nursery import die_with_parent

UNUSABLE, BROKE = 2, 4
Order = tuple[str, Sequence[str]]
"""A cell: where its run goes, and what it sets."""


def main() -> None:
    """Run what stdin orders."""
    order: dict[str, Any] = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever ordered the cells gets it too, and ends this process
    die_with_parent()
    _preload()
    _run_all(Path(order["scenario"]), list(order["cells"]), order["jobs"])


def path_beside(run: Path, kind: str) -> Path:
    """The file of a kind (`log`, `exit`) that belongs to a run and lies beside it."""
    return run.with_name(f"{run.name}.{kind}")


def _run_all(scenario: Path, waiting: list[Order], jobs: int) -> None:
    running: dict[int, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                path, sets = waiting.pop(0)
                running[_fork(scenario, Path(path), sets)] = path
            pid, status = os.waitpid(-1, 0)
            if pid in running:
                print(json.dumps([running.pop(pid), os.waitstatus_to_exitcode(status)]), flush=True)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _fork(scenario: Path, path: Path, sets: Sequence[str]) -> int:
    if path.exists():
        shutil.rmtree(path)  # half a run
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    die_with_parent()
    _run(scenario, path, sets)


def _run(scenario: Path, path: Path, sets: Sequence[str]) -> NoReturn:
    code = BROKE
    try:
        log = os.open(path_beside(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from netdfl.fleet.run import run
        from netdfl.scenario.load import load

        code = int(run(load(scenario, sets), out=path, page=False).exit_code)
    except NetdflError as error:
        print(error, file=sys.stderr)
        code = UNUSABLE if isinstance(error, InputError) else BROKE
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _preload() -> None:
    import torch

    import netdfl.fleet.run
    import netdfl.fleet.simulated  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
