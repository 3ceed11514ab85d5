"""The interface of runners, which make the runs of a study on this machine or elsewhere.

A study gives its runner all cells at once. Each cell is one run, with a directory of its own, and beside it its `.log`
and its `.exit`: they are all that it leaves. `python -m netdfl.study.task FILE NUMBER` makes one run of an order that
was written to a file, which any engine can start where it likes, on a shared disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

from netdfl.study.keeping import Manner

UNUSABLE, BROKE = 2, 4
"""Exit codes of runs that were refused, and that broke."""


def path_beside(run: Path, kind: str) -> Path:
    """Return the file of a kind (`log`, `exit`) beside a run."""
    return run.with_name(f"{run.name}.{kind}")


@dataclass(frozen=True)
class RunNeeds:
    """The resources that an engine keeps free for each run: cores, GPUs, and bytes of memory (None: its usual)."""

    cpus: int = 1
    gpus: float = 0
    memory_nbytes: int | None = None


USUAL = RunNeeds()


@dataclass(frozen=True)
class CellOrder:
    """A run to be made: scenario file, overrides, run directory, world, and estimated cost in CPU seconds.

    `work` names a function, `module:callable`, that is called in place of the run. It takes this order, leaves files in
    `path`, which it makes, and returns an exit code; `argument` is a text for it.
    """

    scenario: Path
    sets: tuple[str, ...]
    path: Path
    world: str
    cost_s: float = 0.0
    work: str = ""
    argument: str = ""


@dataclass(frozen=True)
class StudyOrder:
    """The runs of a study: at most `jobs` at a time, none that would end after `until` (a time of `time.time`).

    With 0 `jobs`, as many go at a time as there is room for. An engine keeps free for each what it `needs`.
    """

    cells: Sequence[CellOrder]
    jobs: int
    manner: Manner = "whole"
    until: float | None = None
    needs: RunNeeds = USUAL

    def to_json(self) -> str:
        """Return the order as JSON text, for another process."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Read an order that `to_json` wrote."""
        data = json.loads(text)
        cells = [
            CellOrder(**c | {"scenario": Path(c["scenario"]), "sets": tuple(c["sets"]), "path": Path(c["path"])})
            for c in data["cells"]
        ]
        return cls(cells, data["jobs"], data["manner"], data["until"], RunNeeds(**data["needs"]))


class Runner(Protocol):
    """A maker of a study's runs. Each object handles one order."""

    def start(self, order: StudyOrder) -> None:
        """Start the runs. Raises InputError or RunError if that is impossible."""
        ...

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        """Yield the directory and exit code of each run that has ended, in any order, until none is left.

        None for a run that was not begun, as it could not have ended in time. A run that is never named has failed.
        """
        ...

    def stop(self) -> None:
        """End all runs at once and clean up; may be called at any time, also in a signal handler."""
        ...
