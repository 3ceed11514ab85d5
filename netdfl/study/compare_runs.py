"""The function `netdfl.compare`: metrics of several runs side by side, as a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import InputError
from netdfl.core.installing import pip_install
from netdfl.record.run import Run, open_run
from netdfl.running.judged import FinishedRun
from netdfl.study.cells import CellResult
from netdfl.study.outcome import figures_of
from netdfl.study.plan import Cell

if TYPE_CHECKING:
    from pandas import DataFrame

Given = FinishedRun | Run | str | Path
FIRST = ("verdict", "algorithm", "nodes", "rounds", "seed")


def compare(runs: Sequence[Given] | Mapping[str, Given]) -> DataFrame:
    """Return a data frame with one row per run, and one column for each metric that any run has.

    Args:
        runs: Finished runs, opened ones, or paths of run directories; a mapping gives them names.

    Raises:
        InputError: Nothing to compare, an argument that is no run, a run without a result, or pandas is not installed.
    """
    try:
        import pandas
    except ImportError as exc:
        raise InputError(
            f"netdfl.compare gives a data frame of pandas, which is not installed: {pip_install('pandas')}"
        ) from exc
    named = dict(runs) if isinstance(runs, Mapping) else _named(runs)
    if not named:
        raise InputError("there is nothing to compare; give runs, like netdfl.compare([first, second])")
    return pandas.DataFrame.from_dict({name: _row(_opened(run)) for name, run in named.items()}, orient="index")


def _named(runs: object) -> dict[str, Given]:
    if isinstance(runs, str | Path | Run | FinishedRun) or not isinstance(runs, Sequence):
        raise InputError(f"expected a list of runs and got {str(runs)[:80]!r}; write netdfl.compare([first, second])")
    opened = [_opened(run) for run in runs]
    names = [f"{run.path.parent.name}/{run.path.name}" for run in opened]
    return {
        name if names.count(name) == 1 else f"{name} ({i})": run
        for i, (name, run) in enumerate(zip(names, opened, strict=True))
    }


def _opened(run: object) -> Run:
    if isinstance(run, Run):
        return run
    if isinstance(run, FinishedRun):
        return run.run
    if isinstance(run, str | Path):
        return open_run(run)
    raise InputError(f"{str(run)[:80]!r} is no run: expected what netdfl.run gave, an opened run, or a run's directory")


def _row(run: Run) -> dict[str, Any]:
    result = run.result
    found = figures_of(CellResult(Cell("", (), int(result["seed"]), ()), run.path, 0, result))
    return {**{name: result[name] for name in FIRST if name in result}, **found}
