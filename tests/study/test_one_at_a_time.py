"""One command at a time makes the runs of a folder, and the tables that stay are of all runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.study.alone import alone
from netdfl.study.progress import FILE, StudyPlan, StudyState, show
from netdfl.study.reproduce import Reproduction, reproduce
from netdfl.study.runners.base import StudyOrder
from netdfl.study.sweep import sweep, write_so_far
from netdfl.study.tuning.tune import TuneOrder, tune
from netdfl.study.tuning.values import read_target
from tests.in_process import InProcess

SCENARIO = """
schema: netdfl/1
name: alone
nodes: 4
rounds: 2
world: simulated
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: ring
"""


class Meanwhile(InProcess):
    """Does something once the order is there, and after each run."""

    begun: ClassVar[Callable[[], object]]
    after: ClassVar[Callable[[], object]]

    def start(self, order: StudyOrder) -> None:
        super().start(order)
        type(self).begun()

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        for each in super().ended():
            type(self).after()
            yield each


@pytest.fixture
def scenario(tmp_path: Path, undrawn: None) -> Path:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path / "s.yaml"


def swept(
    scenario: Path, begun: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None
) -> str:
    runner = type("Runner", (Meanwhile,), {"begun": staticmethod(begun), "after": staticmethod(after)})
    said = io.StringIO()
    console = Console(file=said, width=300)
    assert not sweep(scenario, out=scenario.parent / "out", seeds=2, jobs=1, console=console, make_runner=runner)
    return said.getvalue()


def test_a_folder_is_swept_by_one_command_at_a_time(scenario: Path) -> None:
    """Two took each other's runs away, and both told of runs that had failed."""
    refused = []

    def again() -> None:
        with pytest.raises(InputError) as told:
            swept(scenario)
        refused.append(str(told.value))

    assert "2 cells, 0 failed" in swept(scenario, begun=again)
    folder = scenario.parent / "out" / "alone"
    assert refused == [
        f"another command makes these runs in {folder} now: `netdfl study {folder}` says how far it is; wait until it "
        "ends, or give --out another folder"
    ]
    assert "2 cells, 0 failed" in swept(scenario)


@pytest.mark.soak  # that only one command works at a time is in CI
def test_runs_that_another_command_has_just_made_are_not_made_again(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(plan: Path) -> object:
        monkeypatch.undo()
        swept(scenario)
        return alone(plan)

    monkeypatch.setattr("netdfl.study.sweep.alone", first)
    assert "2 cells, 0 failed" in swept(scenario, begun=lambda: pytest.fail("made again"))


def test_a_study_whose_command_goes_on_is_not_called_left(scenario: Path) -> None:
    """Who was told to repeat the command between two runs had two of them."""
    told: list[str] = []
    swept(scenario, begun=lambda: show(scenario.parent / "out", told.append, lambda folder, study: None))
    assert told == ["alone: 0 of 2 runs finished, 2 queued; time left unknown until a run tells it"]


def test_tables_of_some_runs_do_not_stay_where_all_are_there(scenario: Path) -> None:
    """`netdfl study` writes for seconds what it has read before, and a sweep ends meanwhile."""
    folder = scenario.parent / "out" / "alone"
    states: list[StudyState] = []

    def look() -> None:
        states.append(StudyState.of(StudyPlan.read(folder / FILE)))
        write_so_far(folder, states[0])

    swept(scenario, after=look)
    assert [each.num("finished") for each in states] == [1, 2]
    table = (folder / "table.md").read_text()
    assert "From 1 of 2 runs" not in table
    write_so_far(folder, states[0])
    assert "From 1 of 2 runs" not in (folder / "table.md").read_text()
    (folder / "table.md").write_text("From 1 of 2 runs; 1 queued, 0 failed.\n")
    show(folder, print, write_so_far)
    assert "From 1 of 2 runs" not in (folder / "table.md").read_text()


def test_tables_of_papers_and_searches_are_made_by_one_command_at_a_time(tmp_path: Path, scenario: Path) -> None:
    console, out = Console(quiet=True), tmp_path / "tuned"
    order = TuneOrder(knob="quorum", target=read_target(None, 1.0), values="1,2", seeds=2, confidence=0.95)
    with alone(out / FILE), pytest.raises(InputError, match=rf"makes these runs in {out} now"):
        tune(scenario, order, out=out, console=console, make_runner=InProcess)
    out = tmp_path / "papers"
    asked = Reproduction(paper="003", table="TII", globs=["Fashion-MNIST*"], seeds=(0,), rounds=1)
    with (
        alone(out / "studies" / "003-TII-1-rounds.json"),
        pytest.raises(InputError, match=rf"makes these runs in {out} now: `netdfl study {out}` says"),
    ):
        reproduce(asked, out, console=console, make_runner=InProcess)


def test_a_refused_study_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no"), alone(tmp_path / "new" / FILE):
        raise InputError("no")
    assert not list(tmp_path.iterdir())
