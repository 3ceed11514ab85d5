"""A sweep says that local rounds of unlike methods take no virtual time, where figures show that time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from netdfl.scenario.load import loads
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.plots import figure_of
from netdfl.study.summary import GridPoint
from netdfl.study.sweep import sweep
from netdfl.study.tables import SweepTable
from netdfl.study.untimed import CAPTION, time_note, untimed_work
from tests.in_process import InProcess

TRAINED = """\
schema: netdfl/1
name: trained
nodes: 2
rounds: 2
world: simulated
task: {dataset: digits, model: {name: mlp, hidden: [4]}}
algorithm: {name: dfedavg, lr: 0.1, local_steps: 1}
topology: ring
links: {default: {latency: 5ms}}
"""
UNLIKE = ["algorithm.local_steps=5", "task.batch_size=64", "algorithm.name=dfedsam"]
TAKES_TIME = ["world.compute=10ms", "world.kind=processes", "world.compute={kind: uniform, low: 1ms, high: 2ms}"]


@pytest.mark.parametrize("override", UNLIKE)
def test_unlike_local_rounds_that_take_no_time_are_noted(override: str) -> None:
    works = [untimed_work(loads(TRAINED)), untimed_work(loads(TRAINED, [override]))]
    assert time_note(works) == CAPTION


@pytest.mark.parametrize("override", TAKES_TIME)
def test_rounds_that_take_time_are_not_noted(override: str) -> None:
    assert untimed_work(loads(TRAINED, [override])) == ""


def test_other_methods_with_the_same_local_rounds_are_not_noted() -> None:
    assert time_note(untimed_work(loads(TRAINED, [f"algorithm.name={name}"])) for name in ("dfedavg", "dpsgd")) == ""


def test_problems_without_training_have_no_local_work() -> None:
    toy = TRAINED.replace("{dataset: digits, model: {name: mlp, hidden: [4]}}", "{kind: quadratic, dim: 2}")
    assert untimed_work(loads(toy)) == ""


def test_figures_and_columns_of_virtual_time_have_the_note() -> None:
    points = [
        GridPoint("", (("algorithm.local_steps", str(n)),), 0, {"virtual_duration_s": (n, n + 0.5)}) for n in (1, 5)
    ]
    figure = figure_of(points, FigureSpec(y="virtual_duration_s", x="algorithm.local_steps"), CAPTION)
    assert figure.legends[0].get_title().get_text().splitlines()[-1] == CAPTION
    table = SweepTable(points, ["virtual_duration_s"], frozenset(), untimed=CAPTION)
    assert "{\\footnotesize Local rounds take no virtual time here; set world.compute.}" in table.latex("a")
    assert "virtual time" not in SweepTable(points, ["virtual_duration_s"], frozenset()).latex("a")


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_notes_it_before_it_runs_and_at_its_end(tmp_path: Path) -> None:
    file, said = tmp_path / "trained.yaml", io.StringIO()
    file.write_text(TRAINED)
    console = Console(file=said, width=300)
    assert (
        sweep(
            file, ["algorithm.local_steps=1,5"], out=tmp_path / "out", seeds=1, console=console, make_runner=InProcess
        )
        == 0
    )
    lines = [line.partition(CAPTION)[0] for line in said.getvalue().splitlines() if CAPTION in line]
    assert lines == ["note: ", "- "]
    assert said.getvalue().index(CAPTION) < said.getvalue().index("1 of 2: ")
    assert f"- {CAPTION}: some methods do more" in (tmp_path / "out/trained/table.md").read_text()
