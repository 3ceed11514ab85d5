"""`netdfl blame`: what it prints, what it keeps, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netdfl.blame import told
from netdfl.blame.player import PLAYS
from netdfl.blame.run import BlameLimits
from netdfl.blame.targets import read_target
from netdfl.blame.told import sentences_of, table_of
from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.explore.execute import Executor, ExploredRun, RunTimeout
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from tests.blame.fleets import RING, blamed, found, listed, opened
from tests.blame.test_closed_forms import CORE, LOST, SLOW

TWO = RING | SLOW | {"links": RING["links"] | {"0->1": listed(4), "2->1": listed(4)}}


def test_the_command_prints_the_table_and_writes_a_scenario_that_takes_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(RING | SLOW, tmp_path)
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(make_app(), ["blame", "run", "--out", "blamed"])
    assert printed.exit_code == 0
    assert "the slowness of node 2  75ms   130ms less, 63.4 %" in printed.output
    assert "1 candidate: 2 runs for the table, at most 200 for the set" in printed.output
    assert printed.output.index("1 candidate") < printed.output.index("without  ")
    assert printed.output.splitlines()[-1] == "netdfl run blamed/without.yaml"
    assert Executor().run(load(tmp_path / "blamed" / "without.yaml")).length_ns == 75 * 10**6


def test_a_core_link_and_a_deadline_are_taken_out_of_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last round costs the deadline, and each round before it what the core link's rate costs."""
    opened(RING | {"links": LOST, "underlay": CORE}, tmp_path)
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(make_app(), ["blame", "run", "--out", "blamed", "--but", "loss"])
    assert printed.exit_code == 0
    written = load(tmp_path / "blamed" / "without.yaml")
    assert written.world.no_deadline == [1]  # type: ignore[union-attr]
    assert Executor().run(written).length_ns == 75 * 10**6
    with pytest.raises(InputError, match="'weather' is no kind of candidate; use slowness, loss, message, delay"):
        opened(RING, tmp_path, but=["deadline", "weather"])


def test_what_was_played_is_kept_over_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(TWO, tmp_path)
    monkeypatch.chdir(tmp_path)
    play, plays = Executor.run, []

    def stops(self: Executor, scenario: Scenario) -> ExploredRun:
        if len(plays) == 3:
            raise KeyboardInterrupt
        plays.append(scenario)
        return play(self, scenario)

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "run", stops)
        printed = CliRunner().invoke(make_app(), ["blame", "run", "--out", "blamed", "--but", "deadline"])
    assert printed.exit_code == 130
    assert "repeat the command to go on" in printed.output
    again = opened(TWO, tmp_path, folder=tmp_path / "blamed")
    whole = again.play()
    fresh = opened(TWO, tmp_path, folder=None)
    assert found(fresh.play()) == found(whole)
    assert again.player.played == fresh.player.played - 2
    with (tmp_path / "blamed" / PLAYS).open("a") as file:
        file.write('["torn')
    third = opened(TWO, tmp_path, folder=tmp_path / "blamed")
    third.play()
    assert third.player.played == 0


def test_the_runs_for_the_set_are_bounded_and_then_it_is_not_said_to_be_minimal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = blamed(TWO, tmp_path)
    few = blamed(TWO, tmp_path, limits=BlameLimits(set_runs=0))
    assert whole.minimal
    assert few.set_runs == 0
    assert not few.minimal
    assert few.without == few.bare
    monkeypatch.setattr(told, "MOST_TOLD", 2)
    assert any("; and 1 more (without them" in line for line in sentences_of(few))
    monkeypatch.setattr(told, "MOST_TOLD", 3)
    assert not any(" more (without them" in line for line in sentences_of(few))


def test_candidates_beyond_the_number_of_runs_are_the_less_likely_ones_and_are_counted(tmp_path: Path) -> None:
    """The loss that ended the run by a deadline comes before one that nobody waited for at the end."""
    few = blamed(TWO, tmp_path, limits=BlameLimits(candidates=1))
    assert [row.candidate.text for row in few.rows] == ["the slowness of node 2"]
    assert few.left == 2


def test_a_run_of_a_real_world_is_refused_with_the_command_that_plays_it_first(tmp_path: Path) -> None:
    opened(RING, tmp_path)
    file = tmp_path / "run" / "scenario.yaml"
    file.write_text("schema: netdfl/1\nname: ring\nnodes: 4\nrounds: 1\nalgorithm: dpsgd\ntopology: ring\n")
    with pytest.raises(InputError, match=rf"netdfl run {file} --on simulated"):
        opened(RING, tmp_path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("end", "end"),
        ("bytes", "bytes"),
        ("accuracy", "accuracy"),
        ("accuracy: 90%", "an accuracy of 90 %"),
        ("consensus: 0.01", "a consensus distance of 0.01"),
    ],
)
def test_targets_are_read(text: str, name: str) -> None:
    assert read_target(text).name == name


@pytest.mark.parametrize("text", ["", "end: 3", "speed", "consensus", "accuracy: 2", "consensus: nan", "accuracy: x"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--target"):
        read_target(text)


def test_a_figure_that_the_run_lacks_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no figure test_accuracy"):
        opened(RING, tmp_path, read_target("accuracy: 90%"))


def test_a_play_without_an_end_is_a_row_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = opened(TWO, tmp_path)
    play = Executor.run

    def endless(self: Executor, scenario: Scenario) -> ExploredRun:
        done = play(self, scenario)
        error = RunTimeout("the run was not over after 30 s") if not scenario.world.as_others else None
        return done if error is None else replace(done, broke="Traceback", error=error)

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "run", endless)
        blame = asked.play()
    lines = [line[1] for line in table_of(blame)[1:]]
    assert lines.count("can't be: the run was not over after 30 s") == 2
    assert blame.has_gap


def test_there_is_no_gap_where_nothing_costs_anything(tmp_path: Path) -> None:
    blame = blamed(RING, tmp_path)
    assert not blame.has_gap
    assert blame.found is None
