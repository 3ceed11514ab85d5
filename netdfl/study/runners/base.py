"""The interface of runners, which make the runs of a study on this machine or elsewhere.

A study gives its runner all cells at once. Each cell is one run with a directory of its own, and leaves nothing else
but a `.log` and an `.exit` file beside it. `python -m netdfl.study.task FILE NUMBER` makes one run of an order in a
file; an engine can start that command on any machine with the same disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from netdfl.core.errors import InputError
from netdfl.scenario.load import load
from netdfl.scenario.loading.sources import Digests, changed_files
from netdfl.scenario.model.schema import Scenario
from netdfl.study.keeping import Manner

UNUSABLE, BROKE = 2, 4
"""The exit codes of a run whose scenario was refused, and of a run that ended with an error."""


def path_beside(run: Path, kind: str) -> Path:
    """Return the path of a file beside the directory `run`; `kind` is `log` or `exit`."""
    return run.with_name(f"{run.name}.{kind}")


def last_printed(run: Path) -> str:
    """Return the last line that the task for the directory `run` printed; empty if there is none to read."""
    try:
        lines = path_beside(run, "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class RunNeeds:
    """The resources that an engine (Ray or Slurm) reserves for each run.

    Attributes:
        cpus: the number of cores.
        gpus: the number of GPUs.
        memory_nbytes: the memory in bytes; None leaves it to the engine.
    """

    cpus: int = 1
    gpus: float = 0
    memory_nbytes: int | None = None


USUAL = RunNeeds()


@dataclass(frozen=True)
class CellOrder:
    """A study's order to a runner for one run.

    Attributes:
        scenario: the scenario file.
        sets: the overrides of the scenario.
        path: the directory of the run.
        world: the kind of world.
        cost_s: the estimated CPU time in s.
        work: a function, `module:callable`, to call in place of the run; it takes this order, writes files to `path`,
            which it creates, and returns an exit code.
        argument: a text for that function.
        sources: the digests of the user's modules and of named files when the study begins, by path.
    """

    scenario: Path
    sets: tuple[str, ...]
    path: Path
    world: str
    cost_s: float = 0.0
    work: str = ""
    argument: str = ""
    sources: Digests = field(default_factory=dict)

    def load(self) -> Scenario:
        """Load the scenario. Raises InputError if it is not valid, or if a source has changed since the study began."""
        if changed := changed_files(self.sources):
            raise InputError(
                f"{changed[0]} after the study began, and one table would mix runs from before and after: "
                "put it back and repeat the command, or give --out another folder"
            )
        return load(self.scenario, self.sets)


@dataclass(frozen=True)
class StudyOrder:
    """A study's order to a runner for all its runs.

    Attributes:
        cells: the runs.
        jobs: the number of runs at a time; 0: as many as there is room for.
        manner: the set of options of the runs: `whole`, `published` or `background`.
        until: the time, as by `time.time`, by which runs must end; runs that would end later are skipped. None: no
            limit.
        needs: the resources that an engine keeps free for each run.
    """

    cells: Sequence[CellOrder]
    jobs: int
    manner: Manner = "whole"
    until: float | None = None
    needs: RunNeeds = USUAL

    def is_late(self, cell: CellOrder) -> bool:
        """Return whether a run can't end in time if it begins now."""
        return self.until is not None and time.time() + cell.cost_s > self.until

    def to_json(self) -> str:
        """Return the order as JSON text, for another process."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return the order in a text that `to_json` wrote."""
        data = json.loads(text)
        cells = [
            CellOrder(**c | {"scenario": Path(c["scenario"]), "sets": tuple(c["sets"]), "path": Path(c["path"])})
            for c in data["cells"]
        ]
        return cls(cells, data["jobs"], data["manner"], data["until"], RunNeeds(**data["needs"]))


class Runner(Protocol):
    """A runner, which makes the runs of a study. Each object serves a single order."""

    def start(self, order: StudyOrder) -> None:
        """Start the runs. Raises InputError or RunError if that is not possible."""
        ...

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        """Yield the directory and exit code of each run that has ended, in any order, until none is left.

        The code is None for a run that was skipped, as it could not have ended in time. A run that is never yielded
        counts as failed.
        """
        ...

    def stop(self) -> None:
        """End all runs at once and clean up; may be called at any time, even in a signal handler."""
        ...


class RunnerChoice(NamedTuple):
    """A study's runner, the number of runs at a time (0: as many as there is room for), and each run's resources."""

    make: Callable[[], Runner]
    jobs: int
    needs: RunNeeds
