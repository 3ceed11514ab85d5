"""What version 0.2.0 left on disk still opens, is reported, resumed and replayed; see tests/fixtures/0.2.0/make.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.core.fates import FateClass, MessageCounts
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Budget, Exploration
from netdfl.record.judge import ExitCode
from netdfl.record.messages import count_by_link, count_messages
from netdfl.record.run import Run
from netdfl.report.html import write_report
from netdfl.running.provenance import other_versions
from netdfl.running.run import resume
from netdfl.study.cells import look
from netdfl.study.plan import Cell

MADE = Path(__file__).resolve().parents[1] / "fixtures" / "0.2.0"
ENDED = ("finished", "stalled")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """All of it, to be written to."""
    return shutil.copytree(MADE, tmp_path / "made")


def opened(folder: Path) -> Run:
    return netdfl.open_run(folder)


@pytest.mark.parametrize("name", ENDED)
def test_a_run_opens_with_the_messages_and_fates_that_it_had(name: str) -> None:
    run = opened(MADE / name)
    totals = count_messages(run)
    found = totals.to_json()
    assert found == {key: run.result["messages"][key] for key in found}
    assert sum(link.counts.sent for link in count_by_link(run)) == totals.counts.sent > 0


def test_it_has_messages_of_every_class() -> None:
    """Or what is read of them here would prove little."""
    runs = [*(MADE / name for name in ENDED), *(file.parent for file in (MADE / "swept").rglob("result.json"))]
    counts = MessageCounts.total(count_messages(opened(run)).counts for run in runs)
    assert all(getattr(counts, name) for name in FateClass)


@pytest.mark.parametrize(
    "name", ["finished", "kept", *(pytest.param(each, marks=pytest.mark.soak) for each in ("stalled", "killed"))]
)
def test_a_run_is_reported(name: str, made: Path) -> None:
    assert f"<title>{name}" in write_report(made / name).read_text()


@pytest.mark.parametrize("name", ENDED)
def test_a_run_is_replayed_to_its_last_event(name: str) -> None:
    run = opened(MADE / name)
    try:
        with netdfl.replay(run) as replay:
            replayed = replay.finish().result
    except InputError as refused:
        if any(each in str(refused) for each in other_versions(run.path)):
            return  # other libraries may round otherwise, and it says so
        raise
    same = replayed["event_log_hash"] == run.result["event_log_hash"]
    assert same == (name != "finished"), "it has a crash; `weight_sum`, in the log, is over all nodes now"
    assert replayed["messages"] == run.result["messages"]


def test_a_simulated_run_that_was_killed_ends_as_if_it_had_not_been(made: Path, tmp_path: Path) -> None:
    left_alone = netdfl.run(netdfl.load(MADE / "killed" / "scenario.yaml"), out=tmp_path / "left", page=False).result
    result = resume(made / "killed", page=False).result
    assert result["event_log_hash"] == left_alone["event_log_hash"]


def test_nodes_that_were_killed_go_on_from_their_kept_states(made: Path) -> None:
    sent = "SELECT DISTINCT src, epoch, round, attempt FROM messages WHERE kind = 'data'"
    before = set(opened(made / "kept").rows(sent))
    run = resume(made / "kept", page=False).run
    later = set(run.rows(sent)) - before
    first, last = (max(round for *_, round, _ in rows) for rows in (before, later))
    assert last == 4 > first
    assert {(src, epoch, round) for src, epoch, round, _ in later if round > first} == {
        (src, 1, round) for src in (0, 1) for round in range(first + 1, 5)
    }
    assert [attempt for _, _, round, attempt in later if round < first], "what nobody had acknowledged is sent again"


def test_an_exploration_goes_on_and_finds_what_it_had_found(made: Path, tmp_path: Path) -> None:
    """Its trials that failed are run again: version 0.2.0 knew a cause by the words of a sentence."""
    scenario = shutil.copy(made / "explored.yaml", tmp_path)  # away from make.py, or that would be a part of it
    explored = Exploration(netdfl.load(scenario), seed=7, folder=made / "explored").run(Budget(runs=6))
    then = json.loads((made / "explored" / "shrunk.json").read_text())
    stalls = {cause for cause, shrunk in then.items() if Executor().run(netdfl.load(shrunk["scenario"])).stalls}
    assert {kind_of(cause) for cause in explored.findings} == {kind_of(cause) for cause in stalls}
    assert {kind_of(cause) for cause in set(then) - stalls} <= {"deadlock"}, "who returns late is waited for no more"


def kind_of(cause: str) -> str:
    """Of `stall lost_message lost`, `lost_message`."""
    return cause.split()[1]


@pytest.mark.parametrize("file", sorted((MADE / "explored").glob("finding-*.yaml")), ids=lambda file: file.stem)
def test_what_an_exploration_found_is_a_scenario_that_runs(file: Path, tmp_path: Path) -> None:
    result = netdfl.run(netdfl.load(file), out=tmp_path / "run", page=False).result
    assert result["stalls"] or result["verdict"] == "done"
    if "drop" in file.read_text():  # the others stalled by what happens at a return, and some no longer do
        assert result["stalls"][0]["cause"] == "lost_message"


def test_a_cell_of_a_sweep_is_not_run_again() -> None:
    scenario = MADE / "swept.yaml"
    (ran,), waiting = look(scenario, [Cell("", (), 1, ("links.default.loss=0", "seed=1"))], MADE / "swept")
    assert not waiting
    assert ran.exit_code == ExitCode.PASS
    assert ran.result == json.loads((ran.path / "result.json").read_text())
