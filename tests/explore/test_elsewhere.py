"""Trials that an engine makes on other machines: the search is that of one process, and no failure is swallowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError, RunError
from netdfl.core.files import write_whole
from netdfl.explore.command import explore
from netdfl.explore.elsewhere import TRIALS, run_trials
from netdfl.explore.ends import EndingSettings
from netdfl.explore.explore import Budget, Exploration
from netdfl.explore.journal import RUNS
from netdfl.record.plain_json import dump_json
from netdfl.study.runners.base import USUAL, CellOrder, RunNeeds, Runner, RunnerChoice, StudyOrder, path_beside
from netdfl.study.runners.local import LocalRunner

PART, NUM_RUNS = 4, 20
"""The runs of a part; and more runs than a batch, whose features lead the next."""


class LastFirst(Runner):
    """Makes the trials in this process, from the order as another process reads it, the last part first."""

    orders: ClassVar[list[StudyOrder]] = []
    stopped: ClassVar[int] = 0

    def start(self, order: StudyOrder) -> None:
        self.orders.append(StudyOrder.of_json(order.to_json()))

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        for cell in reversed(self.orders[-1].cells):
            yield cell.path, self.make(cell)

    def make(self, cell: CellOrder) -> int:
        return run_trials(cell)

    def stop(self) -> None:
        type(self).stopped += 1


class Failing(LastFirst):
    """Breaks at the part that begins with the trial 4, with words in its log."""

    def make(self, cell: CellOrder) -> int:
        if cell.path.name != "4":
            return super().make(cell)
        write_whole(path_beside(cell.path, "log"), b"begun\nthe disk is full\n")
        return 4


class Silent(LastFirst):
    """Never names its first part."""

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        yield from list(super().ended())[:-1]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count from 0, have small batches, and try no settings, which is for the machine that searches."""
    monkeypatch.setattr("netdfl.explore.findings.find_ends", lambda *parts: EndingSettings())
    monkeypatch.setattr("netdfl.explore.elsewhere.PART", PART)
    monkeypatch.setattr("netdfl.explore.explore.BATCH", 4 * PART)
    monkeypatch.setattr(LastFirst, "orders", [])
    for kind in (LastFirst, Failing, Silent):
        monkeypatch.setattr(kind, "stopped", 0)


def exploration(text: dict[str, Any], folder: Path, make: Any = None, jobs: int = 0) -> Exploration:
    engine = None if make is None else RunnerChoice(make, jobs, RunNeeds(cpus=3))
    return Exploration(netdfl.load(text | {"nodes": 3, "rounds": 4}), seed=24, folder=folder, engine=engine)


def told(exploring: Exploration, runs: int = NUM_RUNS) -> tuple[str, Sequence[str], list[str]]:
    """All that a command says and leaves: its words, its findings, and its journal by number."""
    out = StringIO()
    explore(exploring, Budget(runs=runs), Console(file=out, width=100), shrink=False)
    assert exploring.folder is not None
    files = [file.read_text() for file in sorted(exploring.folder.glob("finding-*.yaml"))]
    said = out.getvalue().replace(str(exploring.folder), "it")
    return said[said.index(f"{runs} runs") :], files, sorted((exploring.folder / RUNS).read_text().splitlines())


@pytest.mark.soak
def test_a_search_is_the_same_whoever_makes_its_trials_in_whatever_order(small: dict[str, Any], tmp_path: Path) -> None:
    here = told(exploration(small, tmp_path / "here"))
    assert told(exploration(small, tmp_path / "there", LastFirst)) == here
    sizes = [[cell.argument.count('"number"') for cell in order.cells] for order in LastFirst.orders]
    assert sizes == [[PART] * 4, [PART]]
    assert [order.jobs for order in LastFirst.orders] == [4, 1]
    assert {order.needs for order in LastFirst.orders} == {RunNeeds(cpus=3)}
    assert not (tmp_path / "there" / TRIALS).exists()
    assert LastFirst.stopped == 0


class EditedMeanwhile(LastFirst):
    """Edits a module once the first batch has been made."""

    module: ClassVar[Path]

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        yield from super().ended()
        self.module.write_text("from netdfl.topology.static import full as mine\n")


def test_no_batch_is_made_with_a_module_that_was_edited_after_the_first(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graphs.py").write_text("from netdfl.topology.static import ring as mine\n")
    (tmp_path / "s.yaml").write_text(dump_json(small | {"nodes": 3, "rounds": 4, "topology": {"kind": "graphs:mine"}}))
    monkeypatch.setattr(EditedMeanwhile, "module", tmp_path / "graphs.py", raising=False)
    engine = RunnerChoice(EditedMeanwhile, 0, RunNeeds())
    exploring = Exploration(netdfl.load(tmp_path / "s.yaml"), folder=tmp_path / "it", engine=engine)
    with pytest.raises(InputError, match=r"graphs\.py was edited after the study began"):
        exploring.run(Budget(runs=NUM_RUNS))


@pytest.mark.soak
def test_processes_of_an_engine_make_the_trials_from_files_alone(small: dict[str, Any], tmp_path: Path) -> None:
    here = told(exploration(small, tmp_path / "here"), runs=PART)
    assert told(exploration(small, tmp_path / "there", LocalRunner, jobs=1), runs=PART) == here


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param(
            Failing,
            "trials 4 and those behind it were not made: the disk is full; what was found is kept",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Silent,
            "trials 0 and those behind it were not made: its task never told its end; what was found is kept",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_trials_that_were_not_made_end_the_search_and_the_same_command_goes_on(
    kind: type[LastFirst], words: str, small: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(RunError) as raised:
        told(exploration(small, tmp_path / "it", kind))
    assert str(raised.value) == words
    kept = (tmp_path / "it" / RUNS).read_text().count("\n")
    assert kept == {Failing: 2, Silent: 3}[kind] * PART
    assert kind.stopped == (kind is Failing)
    assert told(exploration(small, tmp_path / "it", LastFirst)) == told(exploration(small, tmp_path / "here"))


def test_an_interrupted_search_stops_its_engine(small: dict[str, Any], tmp_path: Path) -> None:
    class Interrupted(LastFirst):
        def make(self, cell: CellOrder) -> int:
            raise KeyboardInterrupt

    explored = exploration(small, tmp_path / "it", Interrupted).run(Budget(runs=PART))
    assert explored.why_stopped == "interrupted"
    assert Interrupted.stopped == 1


def test_the_command_takes_a_runner_with_its_needs(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(json.dumps(small | {"nodes": 3, "rounds": 2}))
    words = ["explore", "small.yaml", "--runs", "2", "--no-shrink"]
    own = [*words, "--runner", f"{__name__}:LastFirst", "--cpus", "2", "--jobs", "5"]
    CliRunner().invoke(make_app(), own, catch_exceptions=False)
    (order,) = LastFirst.orders
    assert (order.jobs, order.needs) == (5, RunNeeds(cpus=2))
    refused = CliRunner().invoke(make_app(), [*words, "--out", "other", "--cpus", "2"])
    assert "--cpus is what an engine keeps free for each run" in str(refused.exception or refused.output)
    assert USUAL != order.needs
