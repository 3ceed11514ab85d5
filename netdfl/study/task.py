"""One run of a study, in a process of its own: `python -m netdfl.study.task FILE NUMBER [PID]`.

FILE holds the order for a study's runs, and NUMBER is the index of the run in it. With the id of the process that
started it as PID, this process dies with that one.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from netdfl.core.errors import InputError, NetdflError
from netdfl.core.process import die_with_parent
from netdfl.study.keeping import FINISHED, MOST_CPU_S, Manner
from netdfl.study.runners.base import BROKE, UNUSABLE, CellOrder, StudyOrder, path_beside

GRACE_S = 60
"""CPU seconds between the limit, at which SIGXCPU ends the process with a message, and SIGKILL."""


def run_cell(order: CellOrder, jobs: int, manner: Manner) -> NoReturn:
    """Make the run, write its exit code to a file beside its directory, and end this process with that code.

    `jobs` is the number of runs that share the disk; with 0, no checkpoints are written.
    """
    code, path = BROKE, order.path
    try:
        if manner == "background":
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + GRACE_S))
        path_beside(path, "exit").unlink(missing_ok=True)
        log = os.open(path_beside(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = _call(order) if order.work else _run(order, jobs, manner)
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


def _run(order: CellOrder, jobs: int, manner: Manner) -> int:
    from netdfl.study.resumable import drop_checkpoints, run_or_resume

    code = run_or_resume(order.load(), order.path, jobs, manner)
    path_beside(order.path, "exit").write_text(f"{code}\n", encoding="utf-8")
    if code in FINISHED:
        drop_checkpoints(order.path)
    return code


def _call(order: CellOrder) -> int:
    """Call the function that the order names in place of a run; return its exit code."""
    module, _, name = order.work.partition(":")
    code = int(getattr(importlib.import_module(module), name)(order))
    path_beside(order.path, "exit").write_text(f"{code}\n", encoding="utf-8")
    return code


def main(file: str, number: str, parent: str = "") -> NoReturn:
    """Make the run with index `number` of the order in `file`; with `parent`, die with that process."""
    if parent:
        die_with_parent(int(parent))
    order = StudyOrder.of_json(Path(file).read_text(encoding="utf-8"))
    run_cell(order.cells[int(number)], order.jobs, order.manner)


if __name__ == "__main__":
    main(*sys.argv[1:])
