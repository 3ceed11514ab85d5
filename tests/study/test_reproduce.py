"""Published tables are reproduced: every cell is a valid scenario or says why not, runs resume, both sides stand."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.host.training_problem import TrainingProblem
from netdfl.record.judge import WELL
from netdfl.running.models import open_run
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario
from netdfl.study.cells import CellResult
from netdfl.study.compare import row_of
from netdfl.study.keeping import keep, kept
from netdfl.study.plan import Cell
from netdfl.study.progress import StudyState, plans_of
from netdfl.study.reproduce import SCENARIOS, Reproduction, parse_seeds, reproduce
from netdfl.study.trials import FigureSetup, figures, published, scenario_of, select, trials
from tests.in_process import InProcess

TABLES = list(dict.fromkeys((figure.paper, figure.table) for figure in figures()))
STAND_IN = '''
import numpy as np
from netdfl.training.data.dataset import Dataset

def pictures(root, /):
    """Ten classes of 28x28 noise around a mean each."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((10, 1, 28, 28))
    def split(n):
        y = np.arange(n) % 10
        return (means[y] + rng.standard_normal((n, 1, 28, 28))).astype(np.float32), y.astype(np.int64)
    return Dataset(*split(200), *split(50), 10)
'''
TINY = ("task.dataset.name=stand_in:pictures", "task.model={name: mlp, hidden: [4]}")


def quiet() -> Console:
    return Console(quiet=True)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the stand-in data, which is the working directory."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scenario_for(trial: FigureSetup, *sets: str) -> Scenario:
    return load(scenario_of(trial, SCENARIOS), (*trial.sets, *sets))


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.soak), 15])
@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_every_cell_is_a_valid_scenario_of_its_own_or_says_why_not(paper: str, table: str, each: int) -> None:
    found = trials(published(paper, table))
    assert len({trial.label for trial in found}) == len(found)
    for trial in found[:: each if len(found) > 50 else 1]:
        if trial.why_not:
            assert not trial.file
            assert trial.figure.dataset == "CINIC-10" or trial.figure.metric not in ("test_acc", "rounds_to_80")
            continue
        scenario = scenario_for(trial)
        assert scenario.notices == ()
        assert scenario.algorithm.kind == trial.figure.method
        assert trial.figure.dataset.lower().replace("-", "") in scenario.task.dataset.kind.replace("_", "")
        if trial.figure.metric.startswith("rounds_to_"):
            assert float(trial.figure.metric.removeprefix("rounds_to_")) / 100 in scenario.report.targets


def test_only_what_netdfl_does_not_measure_or_hold_is_left_out() -> None:
    every = [trial for paper, table in TABLES for trial in trials(published(paper, table))]
    left_out = Counter((trial.figure.dataset == "CINIC-10") or trial.figure.metric for trial in every if trial.why_not)
    assert left_out == {True: 36, "hessian_top_eig": 6}


def cell(paper: str, table: str, label: str) -> Scenario:
    (trial,) = [trial for trial in trials(published(paper, table)) if trial.label == label]
    return scenario_for(trial)


@pytest.mark.parametrize(
    ("paper", "table", "label", "wanted"),
    [
        ("004", "T1", "MNIST/Dir0.6/DFedSAM", {"rho": 0.25, "lr_decay": 0.998, "local_epochs": 5, "rounds": 300}),
        ("004", "T1", "MNIST/IID/D-PSGD", {"local_epochs": 1, "lr": 0.1, "nodes": 100}),
        ("004", "T1", "CIFAR-100/IID/DFedSGPSM", {"rho": 0.1, "momentum": 0.1, "clip_norm": 10, "rounds": 500}),
        ("004", "T1", "CIFAR-10/IID/DFedSGPSM-S", {"neighbors": 10, "momentum": 0.9, "kind": "full"}),
        ("004", "T1", "CIFAR-10/IID/FedAvg", {"participation": 0.1}),
        ("004", "T1", "MNIST/IID/SGP", {"kind": "random_push", "out_neighbors": 10, "redraw_every": 1}),
        ("001", "TII", "CIFAR-10/Dir0.3/OledFL-SAM", {"beta": 0.99, "rho": 0.1, "rounds": 500}),
        ("001", "TII", "CIFAR-100/Path-10/OledFL-SGD", {"beta": 0.8}),
        ("001", "TIV", "CIFAR-10/Dir0.3/grid/OledFL-SGD", {"beta": 0.2}),
        ("002", "T1", "CIFAR-10/IID/FedSAM", {"weight_decay": 0.0, "rounds": 1000}),
        ("002", "T1", "CIFAR-10/IID/DFedSAM-MGS", {"weight_decay": 5e-4, "gossip_steps": 4, "rho": 0.01}),
        ("003", "TII", "Fashion-MNIST/Dir(0.01)/50 clients/FedGAMMA/top-k 0.1",
         {"lr": 0.05, "lr_decay": 1.0, "local_steps": 10, "participation": 0.2, "nodes": 50, "rounds": 300}),
        ("003", "TII", "CIFAR-10/Path(1)/10 clients/FedSynSAM/QSGD-8bit",
         {"distil_steps": 5, "input_lr": 1000.0, "distil_optimizer": "sgd", "rounds": 1000}),
        ("003", "TIV", "CIFAR-10/Path(1)/10 clients/FedAvg/QSGD-4bit/Top", {"local_steps": 20}),
        ("003", "TVI", "CIFAR-10/Path(1)/FedSynSAM/R=200", {"warmup_rounds": 200}),
        ("003", "TVII", "CIFAR-10/Path(1)/FedSynSAM/eta_alpha=1e-4 eta_x=100", {"rate_lr": 1e-4, "input_lr": 100.0}),
    ],
)  # fmt: skip
def test_settings_are_the_papers(paper: str, table: str, label: str, wanted: dict[str, Any]) -> None:
    plain = to_plain(cell(paper, table, label))
    found = plain | plain["topology"] | plain["algorithm"]
    assert {name: found[name] for name in wanted} == wanted


def test_partition_and_compressor_are_the_cells() -> None:
    scenario = cell("003", "TII", "Fashion-MNIST/Path(1)/10 clients/FedAvg/top-k 0.25")
    assert (scenario.compression.kind, scenario.compression.fraction) == ("top_k", 0.25)
    assert scenario.task.dataset.partition.params == {"classes_per_client": 1}
    four = cell("003", "TII", "Fashion-MNIST/Path(1)/10 clients/FedAvg/QSGD-4bit").compression
    assert (four.bits, four.bucket, four.norm) == (4, 512, "max")
    assert cell("004", "T1", "MNIST/Dir0.6/SGP").compression is None


def test_papers_that_share_a_setting_share_its_runs() -> None:
    one = {(t.file, t.sets) for t in trials(published("000", "T1")) if not t.why_not}
    other = {(t.file, t.sets) for t in trials(published("002", "T1")) if not t.why_not}
    assert one == other
    first = {(t.file, t.sets) for t in trials(published("004", "T1"))}
    assert len([t for t in trials(published("004", "T2")) if (t.file, t.sets) in first]) == 3


def test_cells_are_chosen_by_label_or_a_part_of_it() -> None:
    found = trials(published("004", "T1"))
    assert len(select(found, [])) == 81
    assert len(select(found, ["mnist"])) == 27
    assert {t.figure.algorithm for t in select(found, ["CIFAR-10/Dir0.3/DFedSGPSM*"])} == {"DFedSGPSM", "DFedSGPSM-S"}
    assert {t.figure.partition for t in select(found, ["Dir0.3/FedAvg/", "MNIST/IID"])} == {"Dir0.3", "IID"}
    assert len(select(found, ["Dir0.3/FedAvg"])) == 3
    assert len(select(found, ["MNIST/IID"])) == 9
    with pytest.raises(InputError, match=r"matches no cell; cells are named like MNIST/Dir0\.3/FedAvg"):
        select(found, ["mnist", "EMNIST"])


@pytest.mark.parametrize(("text", "seeds"), [("1", (0,)), ("3", (0, 1, 2)), ("4,7", (4, 7)), ("4,", (4,))])
def test_seeds_are_a_number_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "", "a", "1,-2", "0.5"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected how many"):
        parse_seeds(text)


def test_two_cells_run_resume_and_stand_beside_what_is_printed(stand_in: Path) -> None:
    request = Reproduction(
        paper="004",
        table="T1",
        globs=("MNIST/IID/DFedAvg", "MNIST/IID/DFedSGPSM"),
        seeds=(0, 1),
        rounds=2,
        sets=(*TINY, "nodes=4", "algorithm.local_steps=1", "topology={kind: full}"),
    )
    out = stand_in / "out"
    assert reproduce(request, out, jobs=2, console=quiet(), make_runner=InProcess) == 0
    results = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/result.json")}
    assert len(results) == 4
    (_, plan), *others = plans_of(out)
    assert others == []
    assert list(StudyState.of(plan).lines()) == [f"{plan.name}: 4 of 4 runs finished"]
    assert plan.table.exists()
    (table,) = out.glob("004-T1-2-rounds-*.json")
    rows = json.loads(table.read_text())["rows"]
    assert [(row["cell"], row["published"]) for row in rows] == [
        ("MNIST/IID/DFedAvg", 98.08),
        ("MNIST/IID/DFedSGPSM", 98.67),
    ]
    for row in rows:
        runs = [run["test_accuracy"]["average_model"] for run in row["runs"]]
        assert row["seeds"] == [0, 1]
        assert row["measured"] == pytest.approx(50 * sum(run["mean_last_5"] for run in runs))
        assert row["last"] == pytest.approx(50 * sum(run["last"] for run in runs))
        assert row["difference"] == pytest.approx(row["measured"] - row["published"])
        assert (row["rounds"], row["rounds_of_paper"], row["note"]) == (2, 300, "")

    half = out / "cells" / next(iter(results)).parent.name
    (half / "result.json").unlink()
    assert reproduce(request, out, jobs=2, console=quiet(), make_runner=InProcess) == 0
    again = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/result.json")}
    assert {path for path in results if again[path] != results[path]} == {half / "result.json"}
    assert json.loads(table.read_text())["rows"][0]["measured"] == rows[0]["measured"]

    lines = table.with_suffix(".md").read_text().splitlines()
    assert lines[0].startswith("# 004-DFedSGPSM T1, not as printed: rounds=2, task.dataset.name=")
    assert lines[4].startswith("| MNIST/IID/DFedAvg | 98.08 | ")
    written = list(csv.DictReader(table.with_suffix(".csv").read_text().splitlines()))
    assert [float(row["measured"]) for row in written] == [row["measured"] for row in rows]


@pytest.mark.soak  # the next one has rows of an earlier call, and seeds of each
def test_rows_of_an_earlier_call_stay_while_their_scenario_is_the_same(stand_in: Path) -> None:
    shutil.copytree(SCENARIOS, "scenarios")
    sets = (*TINY, "nodes=4", "algorithm.local_steps=1", "topology={kind: full}")

    def cells_after(glob: str) -> list[str]:
        request = Reproduction(paper="004", table="T1", globs=(glob,), rounds=1, sets=sets, scenarios=Path("scenarios"))
        assert reproduce(request, Path("out"), console=quiet()) == 0
        (table,) = Path("out").glob("*.json")
        return [row["cell"] for row in json.loads(table.read_text())["rows"]]

    assert cells_after("MNIST/IID/OSGP") == ["MNIST/IID/OSGP"]
    assert cells_after("MNIST/IID/SGP") == ["MNIST/IID/SGP", "MNIST/IID/OSGP"]
    file = Path("scenarios/004_t1_mnist.yaml")
    file.write_text(file.read_text().replace("batch_size: 128", "batch_size: 64"))
    assert cells_after("MNIST/IID/SGP") == ["MNIST/IID/SGP"]


SMALL = (*TINY, "algorithm.local_steps=1", "task.batch_size=10")


def rows_of(out: Path) -> dict[str, dict[str, Any]]:
    (table,) = out.glob("*.json")
    return {row["cell"]: row for row in json.loads(table.read_text())["rows"]}


def test_what_has_finished_stands_in_the_table_before_anything_else_runs(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two datasets, of two scenario files, whose cells have the same overrides: each row has its own run."""
    names = [f"{data}/Path(1)/10 clients/FedAvg/QSGD-4bit" for data in ("CIFAR-10", "Fashion-MNIST")]
    both = ["*-*/Path(1)/10 clients/FedAvg/QSGD-4bit"]

    def ask(globs: list[str]) -> dict[str, dict[str, Any]]:
        request = Reproduction(paper="003", table="TII", globs=globs, rounds=1, sets=SMALL)
        with suppress(KeyboardInterrupt):
            reproduce(request, stand_in / "out", console=quiet())
        return rows_of(stand_in / "out")

    def interrupted(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    first = ask([names[1]])[names[1]]
    with monkeypatch.context() as patch:
        patch.setattr("netdfl.study.reproduce.run_all", interrupted)
        rows = ask(both)
    assert rows[names[1]] == first
    assert rows[names[0]]["runs"] == []
    rows = ask(both)
    assert rows[names[1]] == first
    (run,) = rows[names[0]]["runs"]
    assert rows[names[0]]["measured"] is not None
    assert run["run"] != first["runs"][0]["run"]


@pytest.mark.soak  # what has finished stands in the table in CI too
def test_seeds_of_earlier_calls_stay_while_their_runs_hold(stand_in: Path) -> None:
    shutil.copytree(SCENARIOS, "scenarios")
    name = "MNIST/IID/DFedAvg"
    sets = (*SMALL, "nodes=4", "topology={kind: full}")

    def seeds_after(*seeds: int) -> list[int]:
        scenarios = Path("scenarios")
        request = Reproduction(
            paper="004", table="T1", globs=(name,), seeds=seeds, rounds=1, sets=sets, scenarios=scenarios
        )
        assert reproduce(request, Path("out"), console=quiet(), make_runner=InProcess) == 0
        row = rows_of(Path("out"))[name]
        accuracies = [100 * run["test_accuracy"]["average_model"]["mean_last_5"] for run in row["runs"]]
        assert row["measured"] == pytest.approx(sum(accuracies) / len(accuracies))
        return list(row["seeds"])

    assert seeds_after(1) == [1]
    assert seeds_after(0, 4) == [0, 1, 4]
    file = Path("scenarios/004_t1_mnist.yaml")
    file.write_text(file.read_text().replace("nodes: 100", "nodes: 90"))
    assert seeds_after(7) == [0, 1, 4, 7]
    file.write_text(file.read_text().replace("evaluation: {every: 1", "evaluation: {every: 2"))
    assert seeds_after(7) == [7]


def test_data_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "empty"))
    console = Console(width=200, file=StringIO())
    request = Reproduction(paper="004", table="T1", globs=("MNIST/IID/*",), rounds=1)
    assert reproduce(request, tmp_path, console=console) == 2
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "not measured: dataset mnist is not in" in text
    assert "run `netdfl data get mnist`" in text
    assert "  MNIST/IID/DFedSGPSM-S\n" in text
    rows = json.loads((tmp_path / "004-T1-1-rounds.json").read_text())["rows"]
    assert len(rows) == 9
    assert all("netdfl data get mnist" in row["note"] and row["measured"] is None for row in rows)


def test_a_dataset_that_netdfl_does_not_know_is_named(tmp_path: Path) -> None:
    assert reproduce(Reproduction(paper="003", table="TIII"), tmp_path, console=quiet()) == 2
    assert "Not measured, netdfl has no dataset CINIC-10" in (tmp_path / "003-TIII.md").read_text()


def test_the_command_passes_on_what_it_is_told(tmp_path: Path) -> None:
    wanted = ["reproduce", "FedSynSAM", "tiii", "--cells", "*/top-k 0.1", "--seeds", "4,7", "--rounds", "2"]
    done = CliRunner().invoke(make_app(), [*wanted, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "not measured: netdfl has no dataset CINIC-10" in done.stdout
    assert done.stdout.count("  CINIC-10/Dir(0.01)/") == 9
    assert len(json.loads((tmp_path / "003-TIII-2-rounds.json").read_text())["rows"]) == 9


def test_without_the_papers_scenarios_it_says_where_to_name_them(tmp_path: Path) -> None:
    request = Reproduction(paper="004", table="T1", scenarios=tmp_path / "none")
    with pytest.raises(InputError, match="name that of the papers' scenarios with --scenarios"):
        reproduce(request, tmp_path, console=quiet())


def test_an_override_that_a_cell_can_not_have_is_its_reason(tmp_path: Path) -> None:
    request = Reproduction(paper="004", table="T1", globs=("MNIST/IID/DFedAvg",), sets=("algorithm.rho=0.1",))
    assert reproduce(request, tmp_path, console=quiet()) == 2
    (table,) = tmp_path.glob("*.json")
    assert "algorithm.rho" in json.loads(table.read_text())["rows"][0]["note"]


def ran(seed: int, *, verdict: str = "pass", accuracy: float = 0.5, reached: int | None = 9) -> CellResult:
    result = {
        "verdict": verdict,
        "reasons": [] if verdict in WELL else ["node 3 had a loss that is not finite in round 7"],
        "rounds": 500,
        "test_accuracy": {"average_model": {"last": accuracy, "best": accuracy, "mean_last_5": accuracy}},
        "targets": [{"accuracy": 0.75, "round": reached}],
    }
    return CellResult(Cell("", (), seed, ()), Path("cell"), 0 if verdict in WELL else 1, result)


def a_trial(metric: str) -> FigureSetup:
    figure = next(f for f in figures() if f.metric == metric and not f.beyond)
    return FigureSetup(figure, "cell")


def test_a_run_that_failed_counts_for_nothing_and_is_named() -> None:
    row = row_of(a_trial("test_acc"), [ran(0), ran(1, verdict="fail", accuracy=0.1), ran(2, accuracy=0.6)], 500)
    assert (row.measured, row.seeds) == (pytest.approx(55), (0, 2))
    assert row.std == pytest.approx(50**0.5)
    assert row.note == "seed 1: fail: node 3 had a loss that is not finite in round 7"


def test_a_run_that_nobody_asked_anything_of_counts_and_what_it_warns_of_is_named() -> None:
    warned = ran(1, verdict="done", accuracy=0.6)
    assert warned.result is not None
    warned.result["warnings"] = [
        {"kind": "collapsed", "text": "collapsed: the average model's accuracy fell from 88.6% to 60.0%"},
        {"kind": "timeouts", "text": "deadlines ended 9 of 10 waits"},
    ]
    row = row_of(a_trial("test_acc"), [ran(0, verdict="done"), warned], 500)
    assert (row.measured, row.seeds) == (pytest.approx(55), (0, 1))
    assert row.note == "seed 1: collapsed: the average model's accuracy fell from 88.6% to 60.0%"


def test_rounds_to_a_target_are_counted_from_one_and_must_be_reached_by_all() -> None:
    trial = a_trial("rounds_to_75")
    assert row_of(trial, [ran(0), ran(1, reached=19)]).measured == 15
    row = row_of(trial, [ran(0), ran(1, reached=None)])
    assert (row.measured, row.difference, row.note) == (None, None, "seed 1: not reached")


def kept_of(ran: CellResult, **kept: float) -> CellResult:
    return replace(ran, kept=kept)


def test_training_accuracy_and_its_gap_are_the_last_average_models() -> None:
    cells = [kept_of(ran(0, accuracy=0.5), train_accuracy=0.9), kept_of(ran(1, accuracy=0.6), train_accuracy=0.8)]
    assert row_of(a_trial("train_acc"), cells).measured == pytest.approx(85)
    assert row_of(a_trial("gap"), cells).measured == pytest.approx(30)
    row = row_of(a_trial("gap"), [*cells, ran(2)])
    assert (row.measured, row.note) == (None, "seed 2: run before training figures were kept")


def test_a_cell_keeps_its_models_and_training_figures_and_the_same_event_log(stand_in: Path) -> None:
    """What a cell keeps, and the rows that it leaves out, change neither its name nor its event log."""
    label, sets = "MNIST/IID/OSGP", (*SMALL, "nodes=4", "topology={kind: random_push, out_neighbors: 2}")
    request = Reproduction(paper="004", table="T1", globs=(label,), rounds=2, sets=sets)
    assert reproduce(request, stand_in / "out", console=quiet()) == 0
    (path,) = (file.parent for file in (stand_in / "out").glob("cells/*/result.json"))
    row = rows_of(stand_in / "out")[label]
    (note,) = row["runs"]

    plain = netdfl.run(load(scenario_of(trials(published("004", "T1"))[0], SCENARIOS), note["sets"]), page=False)
    assert note["event_log_hash"] == plain.result["event_log_hash"]
    runs = (plain.run, open_run(path))
    assert [run.rows("SELECT count(*) FROM messages") for run in runs] == [[(16,)], [(0,)]]
    assert sorted(file.name for file in (path / "models").iterdir()) == [
        *(f"{node:03d}.safetensors" for node in range(4)),
        "average.safetensors",
    ]

    with torch.no_grad():
        data = TrainingProblem(load(path / "scenario.yaml"), Streams(0), 4).shared.train
        x, y = data.take(torch.arange(len(data)))
        right = (open_run(path).model()(x).argmax(1) == y).float().mean().item()
    assert note["train_accuracy"] == pytest.approx(right)
    assert note["cpu_s"] > 0
    assert row["commits"] == [note["commit"]]
    assert re.fullmatch(r"[0-9a-f]{12}\+?|", note["commit"])


def test_the_average_stands_for_models_that_were_too_large_to_keep(stand_in: Path) -> None:
    sets = (*SMALL, "nodes=3", "topology={kind: full}", "rounds=1", "world.kind=simulated")
    trial = select(trials(published("004", "T1")), ["MNIST/IID/OSGP"])[0]
    path = netdfl.run(load(scenario_of(trial, SCENARIOS), (*trial.sets, *sets)), page=False).path
    whole = open_run(path)
    before = [p.clone() for p in whole.model().parameters()]
    whole.keep_average(most_bytes=100)
    assert [file.name for file in (path / "models").iterdir()] == ["average.safetensors"]
    assert all(map(torch.equal, before, open_run(path).model().parameters()))
    with pytest.raises(InputError, match="kept no models"):
        open_run(path).model(1)
    (path / "models" / "average.safetensors").unlink()
    keep(path)
    assert kept(path).keys() == {"commit", "cpu_s", "not_kept"}


@pytest.mark.parametrize("file", sorted({trial.file for p, t in TABLES for trial in trials(published(p, t))} - {""}))
def test_every_round_is_judged_where_the_best_round_is_compared(file: str) -> None:
    assert load(SCENARIOS / f"{file}.yaml").evaluation.every == 1
