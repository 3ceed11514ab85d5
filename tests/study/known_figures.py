"""A check that a study may draw whatever a run recorded."""

from __future__ import annotations

from pathlib import Path

import netdfl
from netdfl.record.run import Run
from netdfl.study.cells import CellResult
from netdfl.study.figure_names import figure_problems
from netdfl.study.outcome import figures_of
from netdfl.study.plan import Cell, load_study

STUDY = """
schema: netdfl/study/1
name: known
sweeps:
  any:
    scenario: {schema: netdfl/1, name: any, nodes: 3, rounds: 1, task: consensus, algorithm: dpsgd, topology: ring}
    vary: {seed: [0, 1]}
    figures: [FIGURES]
"""


def recorded(run: Run) -> set[str]:
    """The names of all metrics that a run recorded by round."""
    return {name for (name,) in run.rows("SELECT DISTINCT name FROM metrics")}


def of_run(path: Path) -> set[str]:
    """The names of all figures that a study has of the whole run in the directory `path`."""
    return set(figures_of(CellResult(Cell("", (), 0, ()), path, 0, netdfl.open_run(path).result)))


def expect_known(names: set[str], folder: Path, x: str = "round") -> None:
    """Fail if a study is refused that draws one of these figures by `x`: the round, or the varied `seed`."""
    file = folder / "known.yaml"
    file.write_text(STUDY.replace("FIGURES", ", ".join(f"{{y: {name}, x: {x}}}" for name in sorted(names))))
    for plan in load_study(file, folder):
        assert figure_problems(plan) == []
