"""The summary of runs that stalled: it names no bystander, and no metric that the task never measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.record.run import Run
from netdfl.report.data.head import head
from netdfl.report.live import summary
from netdfl.report.words import part_rows
from netdfl.scenario.load import load

FAULTS = Path(__file__).resolve().parents[2] / "scenarios" / "faults"
UNMEASURED = {"average_model": {"last": None, "best": None}, "mean_local": None, "mean_personal": None}


def run(name: str, folder: Path) -> Run:
    return netdfl.run(load(FAULTS / f"{name}.yaml"), out=folder / name, page=False).run


def test_time_is_lost_to_the_crashed_node_and_to_none_that_waits(tmp_path: Path) -> None:
    rows = summary(run("crash", tmp_path).result, tmp_path)[2]
    assert rows["time"].endswith("15 ms waiting for node 4, which had crashed")


def test_a_pass_with_a_deadlock_says_that_it_was_expected(tmp_path: Path) -> None:
    done = run("rendezvous_ring", tmp_path)
    said = "a deadlock was expected, and occurred"
    assert (done.result["verdict"], summary(done.result, tmp_path)[1]) == ("pass", [said])
    assert head(done)["reasons"] == [said]


def test_what_a_skipped_deadlock_took_is_called_no_loss(tmp_path: Path) -> None:
    """No message of this fleet is lost: each round stands still until the stall is skipped."""
    scenario = load(FAULTS / "rendezvous_ring.yaml", ["wait.on_stall=skip", "expect.deadlock=any", "rounds=2"])
    done = netdfl.run(scenario, out=tmp_path / "skipped", page=False)
    spent = done.result["time"]
    assert (spent["lost_s"], done.result["messages"]["lost"]) == (0, 0)
    assert spent["skipped_s"] == pytest.approx(0.01)
    assert "10 ms in stalls, until the messages of nodes" in spent["text"]
    assert ["in stalls, until the missing messages were skipped", "10 ms"] in [row[:2] for row in part_rows(spent)]


def test_the_parts_of_an_older_runs_time_are_read_without_those_that_are_new() -> None:
    spent = {"compute_s": 1.0, "links_s": 1.0, "resending_s": 0.0, "deadlines_s": 0.0, "lost_s": 0.0, "behind_s": 0.0}
    assert [row[1] for row in part_rows({**spent, "rest_s": 0.0, "end_s": 0.0, "total_s": 2.0})] == ["1 s", "1 s"]


def test_a_consensus_that_measured_nothing_says_nothing_of_accuracy(tmp_path: Path) -> None:
    done = run("rendezvous_ring", tmp_path)
    assert list(summary(done.result, tmp_path)[2]) == ["consensus", "sent", "time", "run"]
    assert [name for name, *_ in head(done)["numbers"] if "accuracy" in name or "loss" in name] == []


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({"average_model": {"last": 0.5, "best": 0.75}}, "50.0% average model (best 75.0%), – mean of local models"),
        ({"mean_local": 0.25}, "– average model (best –), 25.0% mean of local models"),
        ({"mean_personal": 0.25}, "25.0% mean of nodes' models, each on its own held-out data"),
    ],
)
def test_an_accuracy_that_was_measured_is_said(measured: dict[str, Any], said: str, tmp_path: Path) -> None:
    result = run("rendezvous_ring", tmp_path).result
    assert summary({**result, "test_accuracy": UNMEASURED | measured}, tmp_path)[2]["accuracy"] == said
