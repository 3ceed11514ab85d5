"""The runner of a Slurm cluster: each run is a task of a job array, on a disk that the machines share.

The commands `sbatch`, `squeue` and `scancel` are used, not the package submitit. A run is a command already (`python -m
netdfl.study.task`) and reports its end by files, so there is no function to pickle and no result to load.

If a machine fails, or is given to a job with higher priority, Slurm queues its runs again. If only the process of a run
was killed, the runner submits the run again, for another machine. In both cases the run continues from its checkpoints.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from typing_extensions import override

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import writing
from netdfl.record.directory import hold, is_held
from netdfl.study.runners.base import BROKE, CellOrder, RunNeeds, Runner, StudyOrder, path_beside

TRIES = 3
"""The most times that a run is begun, if its process is killed each time."""
MOST = 1000
"""The most tasks of an array, below the usual limit of Slurm (MaxArraySize, 1001)."""
LOOK_S = 1.0
ARRIVES_S = 30.0
"""The longest time in s that a file on a shared disk takes to be seen by another machine."""
SILENT_S = 600.0
"""The longest time in s that Slurm's controller may fail to answer before the study ends with an error."""
CALL_S = 60.0
GONE_S = 20.0
"""The time in s that canceled jobs get to end when the study is interrupted."""
_SCRIPT = """#!/bin/sh
number=$(({base} + SLURM_ARRAY_TASK_ID))
echo "$SLURMD_NODENAME" > {folder}/$number.on
export PYTHONPATH={path}
{python} -m netdfl.study.task {folder}/order.json "$number"
echo "$?" > {folder}/$number.ended
"""


@dataclass
class _Task:
    """One run in Slurm's queue.

    Attributes:
        cell: the order for the run.
        array: the id of its job array.
        num_tries: the number of times that it was submitted.
        tried: the machines on which its process was killed.
    """

    cell: CellOrder
    array: str = ""
    num_tries: int = 0
    tried: list[str] = field(default_factory=list)
    missed_s: float | None = None
    """The time by `time.monotonic` at which the run was first missing from the queue without a report of its end."""


class SlurmRunner(Runner):
    """A runner that submits job arrays by the `sbatch` of this machine.

    Slurm's own environment variables, such as SBATCH_PARTITION, apply.
    """

    def __init__(self) -> None:
        """Create the runner; no job is submitted yet."""
        self._held = ExitStack()
        self._folder: Path | None = None
        self._calling: subprocess.Popen[str] | None = None
        self._under_way: dict[int, _Task] = {}

    @override
    def start(self, order: StudyOrder) -> None:
        if shutil.which("sbatch") is None:
            raise InputError("--runner slurm: there is no sbatch here; call netdfl on a machine that submits jobs")
        if order.needs.gpus != int(order.needs.gpus):
            raise InputError(f"--gpus {order.needs.gpus:g}: Slurm gives whole GPUs")
        self._order = replace(order, jobs=order.jobs or len(order.cells))
        place = order.cells[0].path.parent.parent
        _end_left(place)
        with writing(place, RunError):
            self._folder = Path(tempfile.mkdtemp(prefix=".slurm-", dir=place))
            (self._folder / "order.json").write_text(self._order.to_json(), encoding="utf-8")
        self._held.enter_context(hold(self._folder))
        self._under_way = {number: _Task(cell) for number, cell in enumerate(order.cells)}
        numbers = [number for number, task in self._under_way.items() if not order.is_late(task.cell)]
        for first in range(0, len(order.cells), MOST):
            if some := [number for number in numbers if first <= number < first + MOST]:
                self._submit(some)

    def _submit(self, numbers: Sequence[int]) -> None:
        """Submit the runs with these numbers in the order as one job array.

        Raises InputError with the text that Slurm printed.
        """
        assert self._folder is not None
        base = numbers[0] // MOST * MOST
        places = dict(folder=shlex.quote(str(self._folder)), path=shlex.quote(os.pathsep.join(filter(None, sys.path))))
        script = _SCRIPT.format(base=base, python=shlex.quote(sys.executable), **places)
        for number in numbers:
            for file in (path_beside(self._under_way[number].cell.path, "exit"), self._file(number, "ended")):
                file.unlink(missing_ok=True)
        array = ",".join(str(number - base) for number in numbers)
        options = [
            f"--array={array}%{self._order.jobs}",
            f"--job-name={_name(self._folder)}",
            "--parsable",
            "--requeue",
        ]
        options += [f"--output={self._folder}/%a.out", *_needed(self._order.needs)]
        job = self._sbatch(
            options, sorted({each for number in numbers for each in self._under_way[number].tried}), script
        )
        for number in numbers:
            task = self._under_way[number]
            task.array, task.missed_s, task.num_tries = job, None, task.num_tries + 1

    def _sbatch(self, options: Sequence[str], exclude: Sequence[str], script: str) -> str:
        """Submit a script and return the job's id; machines in `exclude` are used only if no other machine fits."""
        others = [[f"--exclude={','.join(exclude)}"]] if exclude else []
        for away in (*others, []):
            self._calling = subprocess.Popen(
                ["sbatch", *options, *away],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
            said, wrong = self._calling.communicate(script, CALL_S)
            if self._calling.returncode == 0:
                self._calling = None
                return said.strip().partition(";")[0]
        raise InputError(f"--runner slurm: {wrong.strip()}")

    @override
    def ended(self) -> Iterator[tuple[Path, int | None]]:
        while self._under_way:
            queued = self._queued()
            for number, task in list(self._under_way.items()):
                if not task.array:
                    del self._under_way[number]
                    yield task.cell.path, None
                elif (task.array, number % MOST) not in queued:
                    yield from self._take(number, task)
            if self._under_way:
                time.sleep(LOOK_S)
        self._leave()

    def _take(self, number: int, task: _Task) -> Iterator[tuple[Path, int]]:
        """Handle a run that is no longer queued.

        If it was killed, submit it again; else yield its directory and exit code.
        """
        code = _number_in(path_beside(task.cell.path, "exit"))
        if code is None and not self._file(number, "ended").exists():
            task.missed_s = task.missed_s or time.monotonic()
            if time.monotonic() < task.missed_s + ARRIVES_S:
                return
        if code is None and task.num_tries < TRIES:
            task.tried += filter(None, [_text_in(self._file(number, "on"))])
            self._submit([number])
            return
        del self._under_way[number]
        if code is None:
            code = BROKE
            with suppress(OSError):
                path_beside(task.cell.path, "log").write_text(self._why(number, task) + "\n", encoding="utf-8")
        yield task.cell.path, code

    def _why(self, number: int, task: _Task) -> str:
        on = _text_in(self._file(number, "on"))
        if not on:
            return f"its job wrote nothing to {self._folder}: is that on a disk which all machines share?"
        words = _text_in(self._file(number % MOST, "out")).rpartition("\n")[2]
        return f"begun {task.num_tries} times, on {', '.join([*task.tried, on])}, and never came to its end: {words}"

    def _file(self, number: int, kind: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{number}.{kind}"

    def _queued(self) -> set[tuple[str, int]]:
        """Return the job id and the index of each task that waits or runs. Raises RunError if Slurm does not answer."""
        assert self._folder is not None
        until = time.monotonic() + SILENT_S
        while True:
            told = _call("squeue", "--noheader", "--array", f"--name={_name(self._folder)}", "--format=%F %K")
            if told.returncode == 0:
                pairs = [line.split() for line in told.stdout.splitlines()]
                return {(job, int(index)) for job, index in pairs if index.isdecimal()}
            if time.monotonic() > until:
                raise RunError(f"--runner slurm: no word of Slurm for {SILENT_S:g} s: {told.stderr.strip()}")
            time.sleep(LOOK_S)

    @override
    def stop(self) -> None:
        if self._calling is not None:  # a job that is being submitted has no number yet
            with suppress(subprocess.TimeoutExpired):
                self._calling.wait(CALL_S)
        if self._folder is not None and self._folder.exists():
            _cancel(self._folder)
            self._leave()

    def _leave(self) -> None:
        assert self._folder is not None
        self._held.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _end_left(place: Path) -> None:
    """Cancel the Slurm jobs of earlier studies in the folder `place` that were killed before they could do so."""
    for left in place.glob(".slurm-*"):
        if not is_held(left):
            _cancel(left)
            shutil.rmtree(left, ignore_errors=True)


def _cancel(folder: Path) -> None:
    """Cancel the Slurm jobs of the study with the files in `folder`, and wait until they have ended."""
    name = f"--name={_name(folder)}"
    _call("scancel", name)
    until = time.monotonic() + GONE_S
    while time.monotonic() < until and _call("squeue", "--noheader", name).stdout.strip():
        time.sleep(LOOK_S / 4)


def _name(folder: Path) -> str:
    return f"netdfl{folder.name.removeprefix('.slurm')}"


def _needed(needs: RunNeeds) -> Iterator[str]:
    yield f"--cpus-per-task={needs.cpus}"
    if needs.gpus:
        yield f"--gpus={needs.gpus:.0f}"
    if needs.memory_nbytes is not None:
        yield f"--mem={ceil(needs.memory_nbytes / 2**20)}M"


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _text_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number_in(file: Path) -> int | None:
    text = _text_in(file)
    return int(text) if text.lstrip("-").isdecimal() else None
