"""A study's runs may be made by a runner of one's own: the results are those of this machine's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError, RunError
from netdfl.study.runners.base import USUAL, CellOrder, RunNeeds, Runner, StudyOrder
from netdfl.study.runners.catalog import choose_runner, find_runner
from netdfl.study.runners.local import LocalRunner
from netdfl.study.sweep import sweep
from tests.warm import warm_python

pytestmark = pytest.mark.usefixtures("undrawn")

STUDY = """
schema: netdfl/study/1
name: agreeing
sweeps:
  ring:
    seeds: 1
    vary: {rounds: [2, 3]}
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


class OneAtATime(Runner):
    """Makes each run by the command that engines call, the last one first; `skips` names none of those it skips."""

    skips: ClassVar[int] = 0
    made: ClassVar[list[OneAtATime]] = []

    def __init__(self) -> None:
        self.stopped = 0
        self.made.append(self)

    def start(self, order: StudyOrder) -> None:
        self.order = order
        self.file = order.cells[0].path.parent.parent / "order.json"
        self.file.write_text(order.to_json())

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        for number in reversed(range(self.skips, len(self.order.cells))):
            words = [warm_python(), "-m", "netdfl.study.task", str(self.file), str(number)]
            done = subprocess.run(words, check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
            yield self.order.cells[number].path, done.returncode

    def stop(self) -> None:
        self.stopped += 1


class Leaving(OneAtATime):
    """Never names its first run."""

    skips = 1


class Lying(OneAtATime):
    """Names a run that nobody asked for."""

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        yield Path("/nowhere"), 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agreeing.yaml"
    path.write_text(STUDY)
    return path


def hashes(out: Path) -> dict[str, str]:
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob("ring/cells/*/result.json")}
    return {name: result["event_log_hash"] for name, result in found.items()}


def test_an_own_runner_gives_what_this_machine_gives(file: Path, tmp_path: Path) -> None:
    assert sweep(file, out=tmp_path / "local", console=Console(quiet=True)) == 0
    assert sweep(file, out=tmp_path / "own", console=Console(quiet=True), make_runner=OneAtATime) == 0
    assert len(hashes(tmp_path / "own")) == 2
    assert hashes(tmp_path / "own") == hashes(tmp_path / "local")


def test_runs_that_a_runner_does_not_name_have_failed_and_run_the_next_time(file: Path, tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    assert sweep(file, out=tmp_path / "out", console=console, make_runner=Leaving) == 1
    assert console.export_text().count("Leaving ended without it") == 1
    assert sweep(file, out=tmp_path / "out", console=Console(quiet=True), make_runner=OneAtATime) == 0
    assert len(OneAtATime.made[-1].order.cells) == 1


def test_a_runner_that_names_a_run_which_nobody_asked_for_is_stopped(file: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Lying says that /nowhere ended, which it was not asked to run"):
        sweep(file, out=tmp_path / "out", console=Console(quiet=True), make_runner=Lying)
    assert OneAtATime.made[-1].stopped == 1


def test_fleets_that_span_machines_and_a_runner_exclude_each_other(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--on ray lets each fleet span machines, and --runner lets each run have one"):
        sweep(file, sets=["world.kind=ray"], out=tmp_path, console=Console(quiet=True), make_runner=OneAtATime)


def test_an_order_is_read_back_as_it_was_written() -> None:
    cells = [CellOrder(Path("/a.yaml"), ("x=1",), Path("/b"), "simulated", 3.0)]
    order = StudyOrder(cells, 2, "background", 9.5, RunNeeds(4, 0.5, 1 << 30))
    assert StudyOrder.of_json(order.to_json()) == order


def test_runners_are_named_or_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("class Half:\n    def start(self): ...\nnumber = 3\n")
    assert find_runner("local") is LocalRunner
    assert find_runner("tests.study.test_runners:OneAtATime").__name__ == "OneAtATime"
    for name, words in {
        "lokal": "expected local, slurm, ray, or module:callable of your own",
        "nowhere:Runner": "can't be imported: No module named 'nowhere'",
        "mine:Absent": "can't be imported",
        "mine:Half": "lacks ended, stop: a runner has start, ended and stop",
        "mine:number": "is not callable",
    }.items():
        with pytest.raises(InputError, match=words):
            find_runner(name)


def test_the_command_takes_a_runner_by_its_name(file: Path, tmp_path: Path) -> None:
    words = ["sweep", str(file), "--set", "rounds=1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(make_app(), [*words, "--runner", "lokal"])
    assert isinstance(done.exception, InputError)
    assert "--runner lokal: expected local, slurm, ray" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_an_engine_keeps_free_what_a_command_asks_for_and_this_machine_nothing() -> None:
    assert choose_runner("local") == (LocalRunner, 1, USUAL)
    assert choose_runner("local", 3).jobs == 3
    assert choose_runner("ray")[1:] == (0, RunNeeds(1, 0, None))
    assert choose_runner("ray", 3, 4, 0.5, "2GiB")[1:] == (3, RunNeeds(4, 0.5, 2 << 30))
    for given in ({"cpus": 1}, {"gpus": 1.0}, {"memory": "1GiB"}):
        with pytest.raises(InputError, match=f"--{next(iter(given))} is what an engine keeps free for each run"):
            choose_runner("local", **given)
    with pytest.raises(InputError, match="--memory much"):
        choose_runner("ray", memory="much")
