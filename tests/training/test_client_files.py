"""Data that stay apart: each client's own file, held to what the scenario says, and judged where it lies."""

from __future__ import annotations

import csv
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import DatasetError, InputError
from netdfl.core.rng import Streams
from netdfl.host.task_setup import make_problem
from netdfl.record.judge import ExitCode
from netdfl.running.prepare import check_ready
from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.training.data.client_files import ClientFiles

HEAD = ("a", "b", "kind")
ROWS = [(k % 7, (3 * k) % 5, "odd" if k % 7 > 3 else "even") for k in range(40)]
SCENARIO = """
schema: netdfl/1
name: apart
nodes: 3
rounds: 4
world: simulated
task:
  dataset:
    {name: client_files, each: "{node}.csv", target: kind, inputs: [a, b], classes: [even, odd], mean: [3, 2],
     std: [2, 1.4]}
  model: {name: mlp, hidden: [4]}
  batch_size: 8
algorithm: {name: dpsgd, lr: 0.3}
topology: full
"""


def write(file: Path, rows: Sequence[Sequence[Any]], head: Sequence[str] = HEAD) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([head, *rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three clients' files, of other rows each."""
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "data"))
    for node in range(3):
        write(tmp_path / "data" / f"{node}.csv", ROWS[10 * node : 10 * node + 10])
    write(tmp_path / "common.csv", ROWS[30:])
    return tmp_path


def scenario(*sets: str) -> Any:
    return loads(SCENARIO, sets)


def files(folder: Path, **more: Any) -> ClientFiles:
    said = {"each": "{node}.csv", "target": "kind", "inputs": ["a", "b"], "classes": ["even", "odd"]} | more
    return ClientFiles(root=folder / "data", **said)


def test_a_client_reads_its_own_file_and_needs_no_other(folder: Path) -> None:
    for node in (0, 2):
        (folder / "data" / f"{node}.csv").unlink()
    chosen = scenario()
    problem = make_problem(chosen, Streams(chosen.seed))
    task = problem.task(1, "cpu")
    assert task.samples.x.tolist() == [pytest.approx([(a - 3) / 2, (b - 2) / 1.4]) for a, b, _ in ROWS[10:20]]
    assert task.samples.y.tolist() == [int(kind == "odd") for *_, kind in ROWS[10:20]]
    assert problem.partition() is None


def test_each_model_is_judged_on_rows_that_its_client_held_out(folder: Path) -> None:
    finished = run(scenario("task.dataset.client_test=0.3"), out=folder / "run", page=False)
    assert finished.exit_code == ExitCode.PASS
    rows = finished.run.rows(
        "SELECT node, value FROM metrics WHERE name = 'personal_accuracy' AND round = 3 ORDER BY node"
    )
    assert [node for node, _ in rows] == [0, 1, 2]
    assert all((3 * value) == pytest.approx(round(3 * value)) for _, value in rows), "three rows of each client's ten"
    mean = sum(value for _, value in rows) / 3
    assert finished.result["test_accuracy"]["mean_personal"] == pytest.approx(mean)
    assert finished.result["test_accuracy"]["average_model"]["last"] is None


def test_a_common_file_judges_the_average_model(folder: Path) -> None:
    finished = run(scenario(f"task.dataset.test_file={folder / 'common.csv'}"), out=folder / "run", page=False)
    last = finished.result["test_accuracy"]["average_model"]["last"]
    assert 10 * last == pytest.approx(round(10 * last)), "ten rows"
    assert finished.result["test_accuracy"]["mean_local"] is not None
    assert finished.result["test_accuracy"]["mean_personal"] is None


@pytest.mark.parametrize(
    ("rows", "head", "said"),
    [
        (ROWS[:9], ("a", "c", "kind"), "has no column 'b': set inputs to some of a, c, kind"),
        (ROWS[:9], ("a", "b", "sort"), "has no column 'kind': set target to one of a, b, sort"),
        ([(1, 2, "even"), (1, 2, "none")], HEAD, "holds 'none', which is none of the classes even, odd"),
        ([(1, "x", "even"), (2, "y", "odd")], HEAD, "the column 'b' holds"),
    ],
)
def test_a_file_that_differs_is_named_with_node_machine_and_path(
    folder: Path, rows: list[Any], head: tuple[str, ...], said: str
) -> None:
    path = folder / "data" / "2.csv"
    write(path, rows, head)
    with pytest.raises(DatasetError) as refused:
        files(folder).of(2)
    assert str(refused.value).startswith(f"node 2 on {socket.gethostname()}: {path}")
    assert said in str(refused.value)
    with pytest.raises(InputError, match="node 2 on"):
        check_ready(scenario())


def test_a_file_that_is_missing_is_named_with_its_remedy(folder: Path) -> None:
    path = folder / "data" / "1.csv"
    path.unlink()
    here = socket.gethostname()
    with pytest.raises(DatasetError) as refused:
        files(folder).of(1)
    assert str(refused.value) == (
        f"node 1: its file {path} is not on this machine ({here}): put it there, or set NETDFL_DATA to the folder in "
        "which {node}.csv begins"
    )


@pytest.mark.parametrize(
    ("target", "classes", "said"),
    [
        ((0, 1, 2), 3, ""),
        ((0, 1, 3), 3, "holds 3, and the classes are 0 to 2"),
        ((0, -1, 2), 3, "holds -1, and the classes are 0 to 2"),
        ((0, 0.5, 2), 3, "holds 0.5, and the classes are 0 to 2"),
        (("x", "y", "x"), 2, "holds text, and classes is 2: list the words"),
        ((0.5, -2, 7), None, ""),
    ],
)
def test_targets_are_classes_by_number_or_numbers(
    folder: Path, target: tuple[Any, ...], classes: int | None, said: str
) -> None:
    write(folder / "data" / "0.csv", [(1, 2, each) for each in target])
    own = files(folder, classes=classes)
    if said:
        with pytest.raises(DatasetError) as refused:
            own.of(0)
        assert said in str(refused.value)
        return
    assert own.of(0).y.tolist() == list(target)
    assert own.of(0).y.dtype.is_floating_point == (classes is None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"each": "one.csv"}, "names one file for all nodes"),
        ({"each": "{client}.csv"}, "is no pattern"),
        ({"each": "{node"}, "is no pattern"),
        ({"mean": [1.0]}, "mean has 1 numbers for 2 inputs"),
        ({"std": [1.0, 0.0]}, "std has 0: give numbers above 0"),
    ],
)
def test_what_the_scenario_says_of_the_files_is_checked(folder: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(DatasetError) as refused:
        files(folder, **more)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("task.dataset.partition={kind: dirichlet, alpha: 0.3}", "leave partition out"),
        ("task.dataset.client_test=0.01", "node 0 has 10 examples: too few"),
    ],
)
def test_what_would_need_the_examples_of_others_is_refused(folder: Path, changed: str, said: str) -> None:
    chosen = scenario(changed)
    with pytest.raises(InputError, match=said):
        make_problem(chosen, Streams(chosen.seed)).task(0, "cpu")


def test_a_folder_for_each_node_will_do(folder: Path) -> None:
    write(folder / "data" / "007" / "own.csv", ROWS[:5])
    assert len(files(folder, each="{node:03d}/own.csv").of(7)) == 5
