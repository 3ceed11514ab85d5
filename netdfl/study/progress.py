"""The progress of a study, as `netdfl study DIR` shows it while the study runs or afterwards.

A sweep or a reproduction writes a plan beside its runs: its cells, and the directory of each cell's run. All else is
read from the runs, so that the process that makes them need not be asked.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import OTHER_OUT, write_whole, writing
from netdfl.record.directory import is_held
from netdfl.record.plain_json import dump_json
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.alone import TABLES, is_under_way
from netdfl.study.cells import CellResult, ended
from netdfl.study.plan import Cell
from netdfl.study.runners.base import UNUSABLE, path_beside

SCHEMA = "netdfl/progress/1"
FILE = "study.json"
LOOK_S = 2.0
SO_FAR = re.compile(r"^From \d+ of \d+ runs; ", re.MULTILINE)
"""The words by which a table says that it covers only the runs so far."""
State: TypeAlias = Literal["finished", "failed", "running", "queued"]


@dataclass(frozen=True)
class StudyPlan:
    """The cells (single runs) of one grid or published table, with the names of their run directories.

    Attributes:
        name: the name of the grid or table.
        jobs: the number of runs at a time; 0: as many as there is room for.
        folder: the folder of the runs, `cells/`.
        cells: the name of the run of each cell.
        table: the file of the table.
        is_sweep: whether this is a sweep; else it is a published table.
        figures: the plots that a sweep draws.
        learning: the metrics that a sweep draws over rounds, time and bytes.
        title: the title in captions and headings of the tables; empty: the name.
        refused: the reason of each cell whose scenario is not valid, so that it has no run.
    """

    name: str
    jobs: int
    folder: Path
    cells: Mapping[Cell, str]
    table: Path
    is_sweep: bool = True
    figures: Sequence[FigureSpec] = ()
    learning: Sequence[str] = ()
    title: str = ""
    refused: Mapping[Cell, str] = field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Write the plan. Raises InputError if its folder can't be made, RunError if it can't be written."""
        data = {
            "schema": SCHEMA,
            "name": self.name,
            "jobs": self.jobs,
            "is_sweep": self.is_sweep,
            "folder": os.path.relpath(self.folder, file.parent),
            "table": os.path.relpath(self.table, file.parent),
            "figures": [each.model_dump() for each in self.figures],
            "learning": list(self.learning),
            "title": self.title,
            "cells": [
                asdict(cell) | {"run": run} | ({"refused": self.refused[cell]} if cell in self.refused else {})
                for cell, run in self.cells.items()
            ],
        }
        with writing(file.parent, more=OTHER_OUT):
            file.parent.mkdir(parents=True, exist_ok=True)
        with writing(file, RunError):
            write_whole(file, (dump_json(data) + "\n").encode())

    @classmethod
    def read(cls, file: Path) -> StudyPlan:
        """Read a plan. Raises InputError if the file is damaged."""
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']}, expected {SCHEMA}")
            folder = _beside(file, data["folder"])
            refused = {_cell(each): str(each["refused"]) for each in data["cells"] if "refused" in each}
            earlier = [_cell(each) for each in data["cells"] if each["run"] == folder.name]  # had no reasons
            return cls(
                data["name"],
                int(data["jobs"]),
                folder,
                {_cell(each): str(each["run"]) for each in data["cells"]},
                _beside(file, data["table"]),
                bool(data["is_sweep"]),
                [FigureSpec.model_validate(each) for each in data["figures"]],
                data["learning"],
                str(data.get("title", "")),
                dict.fromkeys(earlier, "its scenario is not valid") | refused,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is no plan of a study: {error!r}; run the study's command again") from error


def _beside(file: Path, name: str) -> Path:
    return Path(os.path.normpath(file.parent / name))


def _cell(data: Mapping[str, Any]) -> Cell:
    values = tuple((str(path), str(value)) for path, value in data["values"])
    return Cell(str(data["case"]), values, int(data["seed"]), tuple(map(str, data["sets"])))


def refused_of(found: Iterable[CellResult]) -> dict[Cell, str]:
    """Return the reason of each of these cells whose scenario is not valid, in the form of `StudyPlan.refused`."""
    return {each.cell: each.why for each in found if each.refused}


def plans_of(folder: Path) -> list[tuple[Path, StudyPlan]]:
    """Return the plans below `folder`, which belongs to a sweep, a grid or tables.

    Raises InputError if there are none.
    """
    files = sorted({*folder.glob(FILE), *folder.glob(f"*/{FILE}"), *folder.glob(f"{TABLES}/*.json")})
    if not files:
        raise InputError(f"{folder} has no study: name the --out of netdfl sweep or reproduce")
    return [(file, StudyPlan.read(file)) for file in files]


@dataclass(frozen=True)
class CellState:
    """The state of one cell, which is one run of a study.

    Attributes:
        cell: the cell.
        state: the state.
        share: the share of its rounds that are done.
        seconds: the duration of its run in s, or an estimate of it; None if unknown.
        ran: its result, also of one that failed; None before its end.
    """

    cell: Cell
    state: State
    share: float = 0.0
    seconds: float | None = None
    ran: CellResult | None = None


@dataclass(frozen=True)
class StudyState:
    """The states of all cells (single runs) of a plan; `under_way`: whether the study's command is still running."""

    plan: StudyPlan
    cells: Sequence[CellState] = field(default_factory=list)
    under_way: bool = False

    @classmethod
    def of(cls, plan: StudyPlan, *, under_way: bool = False) -> StudyState:
        """Read the states of all cells from their run directories."""
        return cls(plan, [_state(plan, cell) for cell in plan.cells], under_way)

    def num(self, state: State) -> int:
        """Return the number of cells in this state."""
        return sum(each.state == state for each in self.cells)

    @property
    def ended(self) -> list[CellResult]:
        """The results of the cells that have finished or failed."""
        return [each.ran for each in self.cells if each.ran is not None]

    @property
    def over(self) -> bool:
        """Whether no cell is left to run."""
        return not self.num("running") and not self.num("queued")

    @property
    def left_s(self) -> float | None:
        """The estimated time left in s; None while no run allows an estimate.

        It assumes `jobs` runs at a time or, if that is 0, as many as are running now.
        """
        if self.over:
            return 0.0
        known: dict[object, list[float]] = {}
        for each in self.cells:
            if each.seconds is not None:
                known.setdefault(each.cell.place, []).append(each.seconds)
        if not known:
            return None
        usual = fmean(each for times in known.values() for each in times)
        left = [
            (fmean(known.get(each.cell.place, [usual])) if each.seconds is None else each.seconds) * (1 - each.share)
            for each in self.cells
            if each.state in ("running", "queued")
        ]
        return max(max(left), sum(left) / (self.plan.jobs or max(1, self.num("running"))))

    def lines(self) -> Iterator[str]:
        """Yield lines of text that describe the states of the study's runs."""
        numbers = {state: self.num(state) for state in ("failed", "running", "queued")}
        rest = "".join(f", {number} {state}" for state, number in numbers.items() if number)
        yield f"{self.plan.name}: {self.num('finished')} of {len(self.cells)} runs finished{rest}{self._left()}"
        for each in self.cells:
            if each.state == "running":
                yield f"  running: {each.cell.words}: {each.share:.0%} of its rounds"
            elif each.state == "failed" and each.ran is not None:
                log = path_beside(each.ran.path, "log")
                yield f"  failed: {each.cell.words}: {each.ran.why}{f'; see {log}' if log.exists() else ''}"

    def _left(self) -> str:
        if self.over:
            return ""
        if not self.num("running") and not self.under_way:
            return "; nothing runs: repeat the study's command to go on"
        left = self.left_s
        return "; time left unknown until a run tells it" if left is None else f"; about {duration(left)} left"


def _state(plan: StudyPlan, cell: Cell) -> CellState:
    if cell in plan.refused:
        return CellState(cell, "failed", ran=CellResult(cell, plan.folder, UNUSABLE, None, plan.refused[cell]))
    path = plan.folder / plan.cells[cell]
    ran = ended(cell, path)
    if ran is not None and ran.result is not None:
        return CellState(cell, "finished", 1.0, float(ran.result["duration_s"]), ran)
    if is_held(path):
        share, seconds = _so_far(path)
        return CellState(cell, "running", share, seconds)
    return CellState(cell, "queued" if ran is None else "failed", ran=ran)


def _so_far(path: Path) -> tuple[float, float | None]:
    """Return the share of rounds that an unfinished run has done, and its estimated total duration in seconds."""
    try:
        status = json.loads((path / "fleet.json").read_text(encoding="utf-8"))
        share = min(1.0, status["rounds_done"] / status["rounds"])
        left_s = status["left_s"]
        return share, None if left_s is None or share >= 1 else float(left_s) / (1 - share)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return 0.0, None


def _has_tables(study: StudyState) -> bool:
    """Return whether the study's command has written the tables of all its runs, or is about to."""
    if not study.over or study.under_way:
        return study.over
    try:
        return SO_FAR.search(study.plan.table.read_text(encoding="utf-8")) is None
    except (OSError, ValueError):
        return False


def duration(seconds: float) -> str:
    """Return a duration as text, rounded coarsely: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show(
    folder: Path,
    say: Callable[[str], None],
    tables: Callable[[Path, StudyState], None],
    *,
    follow: bool = False,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Print the progress of the studies in `folder`; with `follow`, repeat this until all have ended.

    `say` prints a line of text. `tables` writes tables and plots of an unfinished sweep from the runs so far. Raises
    InputError if there is no study.
    """
    before: dict[Path, tuple[bool, list[State]]] = {}
    while True:
        found = {file: StudyState.of(plan, under_way=is_under_way(file)) for file, plan in plans_of(folder)}
        for file, study in found.items():
            states = study.under_way, [each.state for each in study.cells]
            if before.get(file) == states:
                continue
            for line in study.lines():
                say(line)
            if study.plan.is_sweep and study.num("finished") and not _has_tables(study):
                try:
                    tables(file.parent, study)
                except (RunError, OSError) as error:  # of somebody else, or a copy that can only be read
                    say(f"  its tables are not written anew: {error}")
            if study.plan.table.exists():
                say(f"  table: {study.plan.table}")
            before[file] = states
        if not follow or all(study.over and not study.under_way for study in found.values()):
            return
        wait(LOOK_S)
