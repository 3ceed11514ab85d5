"""`netdfl study` reads off the runs how far a study is, and writes tables from those that have finished."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError, RunError
from netdfl.record.directory import hold
from netdfl.study.bar import bar_of, line_of, words_of
from netdfl.study.cells import CellResult
from netdfl.study.plan import Cell
from netdfl.study.progress import FILE, StudyPlan, StudyState, duration, plans_of, show
from netdfl.study.sweep import sweep
from tests.in_process import InProcess

STUDY = """
schema: netdfl/study/1
name: agreeing
sweeps:
  ring:
    seeds: 2
    vary: {rounds: [2, 3]}
    figures: [{y: error, x: round}]
    scenario:
      schema: netdfl/1
      name: agreeing
      nodes: 4
      rounds: 3
      world: simulated
      task: {kind: consensus, dim: 2}
      algorithm: dpsgd
      topology: ring
"""


def plan_of(folder: Path, *seeds: int, jobs: int = 1, case: str = "") -> StudyPlan:
    cells = {Cell(case, (), seed, (f"seed={seed}",)): f"run{seed}" for seed in seeds}
    return StudyPlan("grid", jobs, folder / "cells", cells, folder / "table.md", title="A grid")


def a_run(folder: Path, seed: int, seconds: float, code: int = 0) -> None:
    path = folder / "cells" / f"run{seed}"
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps({"duration_s": seconds}))
    path.with_name(f"run{seed}.exit").write_text(f"{code}\n")


def under_way(folder: Path, seed: int, done: int, left_s: float | None) -> Path:
    path = folder / "cells" / f"run{seed}"
    path.mkdir(parents=True)
    (path / "fleet.json").write_text(json.dumps({"rounds": 10, "rounds_done": done, "left_s": left_s, "nodes": []}))
    return path


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 0, 1)
    plan.write(tmp_path / FILE)
    assert StudyPlan.read(tmp_path / FILE) == StudyPlan(**{**vars(plan), "figures": [], "learning": []})
    assert [file for file, _ in plans_of(tmp_path)] == [tmp_path / FILE]


def test_a_refused_cell_has_failed_also_in_a_plan_of_an_earlier_version(tmp_path: Path) -> None:
    """Such a plan has the folder of all runs in place of a run, and no reason."""
    file, cell = tmp_path / FILE, Cell("", (), 1, ("seed=1",))
    plan = replace(plan_of(tmp_path, 0), cells={**plan_of(tmp_path, 0).cells, cell: "cells"}, refused={cell: "no ring"})
    a_run(tmp_path, 0, 60)
    plan.write(file)
    assert StudyPlan.read(file).refused == plan.refused
    data = json.loads(file.read_text())
    del data["cells"][1]["refused"]
    file.write_text(json.dumps(data))
    study = StudyState.of(StudyPlan.read(file))
    assert list(study.lines()) == [
        "grid: 1 of 2 runs finished, 1 failed",
        "  failed: seed=1: its scenario is not valid",
    ]


def test_cells_are_finished_failed_running_or_queued(tmp_path: Path) -> None:
    a_run(tmp_path, 0, 60)
    a_run(tmp_path, 1, 1, code=4)
    path = under_way(tmp_path, 2, 5, 40)
    with hold(path):
        study = StudyState.of(plan_of(tmp_path, 0, 1, 2, 3))
    assert [each.state for each in study.cells] == ["finished", "failed", "running", "queued"]
    assert list(study.lines()) == [
        "grid: 1 of 4 runs finished, 1 failed, 1 running, 1 queued; about 2 min left",
        "  failed: seed=1: exit code 4",
        "  running: seed=2: 50% of its rounds",
    ]


def test_the_time_left_is_what_like_runs_took_shared_by_the_jobs(tmp_path: Path) -> None:
    a_run(tmp_path, 0, 100)
    with hold(under_way(tmp_path, 1, 5, 60)):
        alone, two = (StudyState.of(plan_of(tmp_path, 0, 1, 2, 3, jobs=jobs)) for jobs in (1, 2))
    usual = (100 + 120) / 2
    assert alone.left_s == pytest.approx(60 + 2 * usual)
    assert two.left_s == pytest.approx((60 + 2 * usual) / 2)


def test_the_time_left_is_never_less_than_the_longest_run_needs(tmp_path: Path) -> None:
    a_run(tmp_path, 0, 100)
    assert StudyState.of(plan_of(tmp_path, 0, 1, jobs=8)).left_s == pytest.approx(100)


def test_the_time_left_is_unknown_until_a_run_tells_it(tmp_path: Path) -> None:
    with hold(under_way(tmp_path, 0, 0, None)):
        study = StudyState.of(plan_of(tmp_path, 0, 1))
    assert study.left_s is None
    assert next(iter(study.lines())).endswith("; time left unknown until a run tells it")


def test_a_study_that_was_left_says_so_and_one_that_is_over_has_no_time_left(tmp_path: Path) -> None:
    a_run(tmp_path, 0, 100)
    left, over = (StudyState.of(plan_of(tmp_path, *seeds)) for seeds in ((0, 1), (0,)))
    assert next(iter(left.lines())).endswith("; nothing runs: repeat the study's command to go on")
    assert list(over.lines()) == ["grid: 1 of 1 runs finished"]
    assert over.left_s == 0


@pytest.mark.parametrize("error", [RunError("a/table.md can't be written"), PermissionError(13, "no", "a/table.md")])
def test_the_progress_is_told_where_no_tables_can_be_written(error: Exception, tmp_path: Path) -> None:
    def refuse(folder: Path, study: StudyState) -> None:
        raise error

    for name in "ab":
        a_run(tmp_path / name, 0, 100)
        plan_of(tmp_path / name, 0, 1).write(tmp_path / name / FILE)
    said: list[str] = []
    show(tmp_path, said.append, refuse)
    left = "grid: 1 of 2 runs finished, 1 queued; nothing runs: repeat the study's command to go on"
    assert said == [left, f"  its tables are not written anew: {error}"] * 2


@pytest.mark.parametrize(("seconds", "words"), [(40, "40 s"), (119, "2 min"), (5399, "90 min"), (12600, "3.5 h")])
def test_times_are_said_no_finer_than_they_are_known(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_following_says_again_what_changed_and_ends_with_the_study(tmp_path: Path) -> None:
    said: list[str] = []
    written: list[int] = []
    plan_of(tmp_path, 0, 1).write(tmp_path / FILE)

    def wait(seconds: float) -> None:
        ended = len([file for file in (tmp_path / "cells").glob("*.exit")]) if (tmp_path / "cells").exists() else 0
        if len(said) and said[-1] != "again":
            said.append("again")
        else:
            a_run(tmp_path, ended, 10)

    show(tmp_path, said.append, lambda folder, study: written.append(len(study.ended)), follow=True, wait=wait)
    assert said == [
        "grid: 0 of 2 runs finished, 2 queued; nothing runs: repeat the study's command to go on",
        "again",
        "grid: 1 of 2 runs finished, 1 queued; nothing runs: repeat the study's command to go on",
        "again",
        "grid: 2 of 2 runs finished",
    ]
    assert written == [1, 2]


@pytest.mark.parametrize("text", ["{}", "[", '{"schema": "netdfl/progress/9"}'])
def test_a_folder_without_a_study_or_with_a_damaged_one_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="has no study"):
        plans_of(tmp_path)
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InputError, match="is no plan of a study"):
        plans_of(tmp_path)


class Killing(InProcess):
    """Makes all runs but the first, which is killed: it leaves an empty log, and no exit code."""

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        first, *others = self.order.cells
        self.order = replace(self.order, cells=others)
        first.path.with_name(f"{first.path.name}.log").touch()
        yield first.path, -9
        yield from super().ended()


@pytest.mark.usefixtures("undrawn")
def test_cells_that_failed_stay_so_whether_they_were_refused_or_killed(tmp_path: Path) -> None:
    """A sweep of which some cells failed is over, and its tables have a row for them before and afterwards."""
    file, out = tmp_path / "agreeing.yaml", tmp_path / "out"
    combined = "vary: {nodes: [4, 6], topology: [ring, '{kind: random_sym, neighbors: 4}']}"
    file.write_text(STUDY.replace("vary: {rounds: [2, 3]}", combined))
    assert sweep(file, out=out, console=Console(quiet=True), make_runner=Killing) == 3

    def rows() -> dict[tuple[str, str, str], str]:
        with (out / "ring" / "cells.csv").open(newline="") as lines:
            return {(row["nodes"], row["topology"], row["seed"]): row["wrong"] for row in csv.DictReader(lines)}

    failed = {cell: wrong for cell, wrong in rows().items() if wrong}
    assert len(rows()) == 8
    assert sorted(nodes for nodes, _, _ in failed) == ["4", "4", "4"]
    done = CliRunner().invoke(make_app(), ["study", str(out), "--follow"])
    first, *lines, _ = done.stdout.splitlines()
    assert first == "ring: 5 of 8 runs finished, 3 failed"
    assert sum(line.endswith("seed=0: exit code -9; see " + str(next(out.rglob("*.log")))) for line in lines) == 1
    assert sum("neighbors" in line.partition(", seed=")[2] for line in lines) == 2
    kept = next(file for file in (out / "ring" / "cells").glob("*.exit") if file.read_text() == "0\n")
    kept.unlink()
    done = CliRunner().invoke(make_app(), ["study", str(out)])
    assert done.stdout.startswith("ring: 4 of 8 runs finished, 3 failed, 1 queued; nothing runs")
    assert len(rows()) == 7
    assert {cell: wrong for cell, wrong in rows().items() if wrong} == failed
    table = (out / "ring" / "table.md").read_text()
    assert table.startswith("From 4 of 8 runs; 1 queued, 3 failed.\n\n")
    assert "| 0 (2 failed) |" in table
    assert "\n% Before you print it: From 4 of 8 runs; 1 queued, 3 failed.\n" in (out / "ring/table.tex").read_text()
    assert sweep(file, out=out, console=Console(quiet=True), make_runner=InProcess) == 2
    assert (out / "ring" / "table.md").read_text().startswith("| nodes | topology |")


@pytest.mark.usefixtures("without_curves", "unsaved")
def test_a_sweep_leaves_its_plan_and_half_of_its_runs_make_a_table(tmp_path: Path) -> None:
    file = tmp_path / "agreeing.yaml"
    file.write_text(STUDY)
    out = tmp_path / "out"
    assert sweep(file, out=out, console=Console(quiet=True), make_runner=InProcess) == 0
    whole = (out / "ring" / "table.md").read_text()
    done = CliRunner().invoke(make_app(), ["study", str(out)])
    assert done.stdout.startswith("ring: 4 of 4 runs finished\n  table: ")
    next((out / "ring" / "cells").glob("*.exit")).unlink()
    figures = list((out / "ring" / "figures").glob("*.png"))
    for figure in figures:
        figure.unlink()
    done = CliRunner().invoke(make_app(), ["study", str(out)])
    assert done.exit_code == 0, done.stdout
    assert done.stdout.startswith("ring: 3 of 4 runs finished, 1 queued; nothing runs")
    assert (out / "ring" / "table.md").read_text() != whole
    assert figures
    assert all(figure.exists() for figure in figures)


def test_the_bar_tells_what_runs_waits_and_failed_and_the_time_left(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 0, 1, 2, 3)
    a_run(tmp_path, 0, 100)
    a_run(tmp_path, 1, 100, code=4)
    path = under_way(tmp_path, 2, 5, 50.0)
    assert words_of(StudyState.of(plan)) == "2 queued, 1 failed"
    with hold(path):
        assert words_of(StudyState.of(plan)) == "1 running, 1 queued, 1 failed, about 2 min left"
        said = StringIO()
        with bar_of(plan, Console(file=said, force_terminal=True, width=150)):
            pass
    assert "1/4" in said.getvalue()
    assert "1 running, 1 queued, 1 failed, about 2 min left" in said.getvalue()


def test_the_bar_says_nothing_where_nobody_looks(tmp_path: Path) -> None:
    said = StringIO()
    with bar_of(plan_of(tmp_path, 0), Console(file=said)):
        pass
    assert said.getvalue() == ""


@pytest.mark.usefixtures("undrawn")
def test_each_finished_run_is_a_line_where_nobody_looks_and_none_on_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "agreeing.yaml"
    file.write_text(STUDY)
    plain, terminal, again = StringIO(), StringIO(), StringIO()
    assert sweep(file, out=tmp_path / "plain", console=Console(file=plain), make_runner=InProcess) == 0
    lines = [line for line in plain.getvalue().splitlines() if " of 4: " in line]
    assert [int(line.partition(" ")[0]) for line in lines] == [1, 2, 3, 4]
    assert all(re.fullmatch(r"\d of 4: rounds=[23], seed [01]: [a-z]+ in [\d.]+ s", line) for line in lines)
    assert len(set(line.partition(": ")[2].partition(": ")[0] for line in lines)) == 4
    assert sweep(file, out=tmp_path / "plain", console=Console(file=again), make_runner=InProcess) == 0
    assert " of 4: " not in again.getvalue()
    next((tmp_path / "plain" / "ring" / "cells").glob("*.exit")).unlink()
    assert (
        sweep(
            file,
            out=tmp_path / "plain",
            console=Console(file=terminal, force_terminal=True, width=150),
            make_runner=InProcess,
        )
        == 0
    )
    assert " of 4: " not in terminal.getvalue()


@pytest.mark.parametrize(("seconds", "took"), [(4.21, "4.2 s"), (600, "10 min")])
def test_the_line_of_a_run_has_the_accuracy_that_it_reached(seconds: float, took: str, tmp_path: Path) -> None:
    result = {"test_accuracy": {"average_model": {"last": 0.8461}}, "duration_s": seconds, "verdict": "pass"}
    ran = CellResult(Cell("DFedSAM", (("links.default.loss", "0.2"),), 0, ()), tmp_path, 0, result)
    assert line_of(ran, "DFedSAM, loss=0.2, seed 0") == f"DFedSAM, loss=0.2, seed 0: 84.6 % in {took}"
