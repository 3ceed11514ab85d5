"""What a sweep says before its figures: each kind of warning once, with how many runs have it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from netdfl.study.cells import CellResult
from netdfl.study.plan import Cell
from netdfl.study.sweep import sweep
from netdfl.study.tables import SweepTable
from netdfl.study.warned import NOT_PASSED, notices_of, warnings_of
from tests.in_process import InProcess
from tests.study.few_runs import FEW, IN_TIME

LOSSY = f"schema: netdfl/1\nname: lossy\n{IN_TIME}"


def ran(method: str, loss: str, seed: int, *kinds: str) -> CellResult:
    """A run with warnings of these kinds, whose texts name method and seed."""
    warnings = [{"kind": kind, "text": f"{kind} of {method}, seed {seed}"} for kind in kinds]
    values = (("algorithm.name", method), ("links.default.loss", loss))
    return CellResult(Cell("", values, seed, ()), Path("unused"), 0, {"warnings": warnings})


def test_each_kind_is_told_once_with_the_combinations_of_which_most_runs_have_it() -> None:
    runs = [ran(method, loss, seed) for method in "ab" for loss in ("0", "1") for seed in (0, 1)]
    assert warnings_of(runs) == []
    runs[1], runs[2], runs[3] = (
        ran("a", "0", 1, "timeouts"),
        *(ran("a", "1", s, "timeouts", "diverged") for s in (0, 1)),
    )
    assert warnings_of(runs) == [
        "timeouts in 3 of 8 runs, most in a, loss=1 (100% of the runs); one of them: timeouts of a, seed 0",
        "diverged in 2 of 8 runs, most in a, loss=1 (100% of the runs); one of them: diverged of a, seed 0",
    ]


def test_where_all_combinations_warn_alike_none_is_named() -> None:
    runs = [ran(method, "0", 0, "timeouts") for method in "abcde"]
    assert warnings_of(runs) == ["timeouts in 5 of 5 runs; one of them: timeouts of a, seed 0"]
    (told,) = warnings_of([*runs, ran("f", "0", 0)])
    assert "most in a, loss=0; b, loss=0; c, loss=0 and 2 more (100% of the runs)" in told


def test_runs_without_a_result_are_not_counted() -> None:
    failed = CellResult(Cell("", (), 1, ()), Path("unused"), 2, None)
    assert warnings_of([failed]) == []
    (told,) = warnings_of([ran("a", "0", 0, "timeouts"), failed])
    assert told.startswith("timeouts in 1 of 1 runs; ")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("expect", "wrong"), [("error: {at_least: 1}", "error was"), ("deadlock: some", "dead")])
def test_runs_that_did_not_pass_are_told_before_the_figures(expect: str, wrong: str, tmp_path: Path) -> None:
    """Their figures are in the means: nodes may have died, or the scenario may have expected more than there is."""
    said, out = io.StringIO(), tmp_path / "out/few"
    file = tmp_path / "mine.yaml"
    cases = f"cases: {{one: {{expect: {{{expect}}}}}, two: {{}}}}"
    file.write_text(f"{FEW}      topology: ring\n    {cases}\n    seeds: 2\n")
    console = Console(file=said, width=300)
    assert sweep(file, out=tmp_path / "out", console=console, make_runner=InProcess) == 0
    told = f"{NOT_PASSED} in 2 of 4 runs, most in one (100% of the runs); one of them: fail: {wrong}"
    assert f"before you read the figures:\n- {told}" in said.getvalue()
    assert "4 cells, 0 failed, 2 did not pass; tables" in said.getvalue()
    table = (out / "table.md").read_text()
    assert table.startswith(f"Before the figures:\n\n- {told}")
    assert "| one | 2 (2 did not pass) | " in table
    with (out / "cells.csv").open(newline="") as lines:
        found = [(row["case"], row["wrong"].startswith(f"fail: {wrong}")) for row in csv.DictReader(lines)]
    assert found == [("one", True), ("one", True), ("two", False), ("two", False)]


def test_a_table_begins_with_what_has_to_be_known() -> None:
    assert (
        SweepTable([], [], frozenset(), ["a in 1 of 2 runs"])
        .markdown()
        .startswith("Before the figures:\n\n- a in 1 of 2 runs\n\n| case |")
    )


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_ends_with_the_warnings_of_its_runs(tmp_path: Path) -> None:
    (tmp_path / "lossy.yaml").write_text(LOSSY)
    said = io.StringIO()
    vary = ["links.default.loss=0,0.9"]
    assert (
        sweep(
            tmp_path / "lossy.yaml",
            vary,
            out=tmp_path,
            seeds=1,
            console=Console(file=said, width=300),
            make_runner=InProcess,
        )
        == 0
    )
    told = "- timeouts in 1 of 2 runs, most in loss=0.9 (100% of the runs); one of them: deadlines ended"
    assert f"before you read the figures:\n{told}" in said.getvalue()
    assert (tmp_path / "lossy" / "table.md").read_text().startswith(f"Before the figures:\n\n{told}")


def noted(method: str, *notices: str) -> tuple[Cell, tuple[str, ...]]:
    return Cell("", (("algorithm.name", method),), 0, ()), notices


def test_a_notice_of_some_scenarios_alone_has_their_names() -> None:
    common, of_some = notices_of([noted("a", "x", "y"), noted("a", "x", "y"), noted("b", "x"), noted("c", "x", "y")])
    assert (common, of_some) == (["x"], ["a; c: y"])
    assert notices_of([noted("a"), noted("b")]) == ([], [])


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_says_before_it_runs_that_one_method_alone_is_acknowledged(tmp_path: Path) -> None:
    """Acknowledged push-sum beside plain gossip is no fair comparison under loss, unless it is known."""
    (tmp_path / "lossy.yaml").write_text(LOSSY.replace("wait: {deadline: 30ms}\n", ""))
    vary, said, sets = ["algorithm.name=dpsgd,sgp"], io.StringIO(), ["links.default.loss=20%"]
    console = Console(file=said, width=1000)
    assert (
        sweep(
            tmp_path / "lossy.yaml", vary, sets, out=tmp_path / "out", seeds=1, console=console, make_runner=InProcess
        )
        == 0
    )
    notice = "sgp: delivery: auto is acknowledged here"
    lines = [line for line in said.getvalue().splitlines() if notice in line]
    assert [line.partition(notice)[0] for line in lines] == ["note: ", "- "]
    assert said.getvalue().index(lines[0]) < said.getvalue().index("1 of 2: ")
    assert f"- {notice}" in (tmp_path / "out" / "lossy" / "table.md").read_text()
