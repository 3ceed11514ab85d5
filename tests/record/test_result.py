"""`result.json`: every number recomputed from a store small enough to add up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.fates import Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.record.directory import RunDirectory
from netdfl.record.observations import RunFacts
from netdfl.record.result import Summary, summarize
from netdfl.record.run import open_run
from netdfl.record.status import EvaluationStatus, FleetStatus, NodeStatus, Phase
from netdfl.record.store import StoreWriter
from netdfl.report.words import remarks
from tests.record.outcomes import outcome_of

SECOND = 10**9


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "q", 7, out=tmp_path / "run")
    directory.write("scenario.yaml", "")
    return directory


def facts(**more: Any) -> RunFacts:
    given = {"scenario": "q", "seed": 7, "world": "processes", "algorithm": "sgp", "nodes": 3, "rounds": 8}
    return RunFacts(**(given | {"duration_s": 9.5} | more))


def summary(directory: RunDirectory, **more: Any) -> Summary:
    return summarize(open_run(directory.path), facts(**more))


def test_figures_are_those_of_the_store(directory: RunDirectory) -> None:
    with StoreWriter(directory.path, "fleet") as writer:
        for round, accuracy in enumerate((0.1, 0.2, 0.9, 0.4, 0.5, 0.6, 0.7, 0.5)):
            writer.metrics(round * SECOND, None, round, {"test_accuracy": accuracy})
            writer.metrics(round * SECOND, None, round, {"consensus_distance": 1 / (1 + round)})
            for node in range(3):
                writer.metrics(round * SECOND, node, round, {"train_loss": node + 1 / (1 + round)})
            message = Message(0, 1, Kind.DATA, 0, round, 0, 0, Payload())
            writer.outcome(
                outcome_of(
                    message, 100, round, round + 1, Fate.read("delivered") if round else Fate.read("dropped:loss")
                )
            )
        writer.outcome(
            outcome_of(Message(0, 2, Kind.DATA, 0, 7, 0, 0, Payload()), 50, 0, None, Fate.read("failed:unavailable"))
        )
        writer.metrics(0, None, 7, {"mean_local_accuracy": 0.25})
    result, judgement = summary(directory, targets=[0.2, 0.95])
    assert result["test_accuracy"]["average_model"] == {"last": 0.5, "best": 0.9, "mean_last_5": pytest.approx(0.54)}
    assert result["test_accuracy"]["mean_local"] == 0.25
    assert result["consensus_distance"] == 1 / 8
    assert result["train_loss"] == pytest.approx(1 + 1 / 8)
    assert (result["test_loss"], result["weight_sum"]) == (None, None)
    why = {"lost": {"loss": 1}, "undeliverable": {"unavailable": 1}}
    counted = {"sent": 9, "delivered": 7, "lost": 1, "undeliverable": 1, "why": why}
    assert {name: value for name, value in result["messages"].items() if value} == counted
    assert result["bytes_sent"] == 850
    assert result["targets"] == [
        {"accuracy": 0.2, "round": 1, "bytes": 200, "seconds": 1.0},
        {"accuracy": 0.95, "round": None, "bytes": None, "seconds": None},
    ]
    assert (result["verdict"], result["reasons"], judgement.exit_code) == ("done", [], 0)


def test_an_empty_store_still_gives_a_result(directory: RunDirectory) -> None:
    result, judgement = summary(directory, broke="the disk is full")
    assert not any(result["messages"].values())
    assert result["test_accuracy"]["average_model"]["last"] is None
    assert (judgement.verdict, judgement.exit_code) == ("unknown", 4)
    directory.write_json("result.json", result)
    assert open_run(directory.path).result == json.loads(json.dumps(result))


def test_a_result_names_the_versions_and_only_its_worlds_fields(directory: RunDirectory) -> None:
    result, _ = summary(directory)
    assert set(result["versions"]) == {"python", "netdfl", "torch", "numpy", "grpcio"}
    assert not {"virtual_duration_s", "event_log_hash"} & set(result)
    simulated, _ = summary(directory, virtual_duration_s=80.0, event_log_hash="abc")
    assert (simulated["virtual_duration_s"], simulated["event_log_hash"]) == (80.0, "abc")


def test_the_dead_are_named_with_those_who_waited(directory: RunDirectory) -> None:
    with StoreWriter(directory.path, "fleet") as writer:
        writer.event(5 * SECOND, 2, 4, "died", signal="SIGKILL", exit_code=-9)
        writer.event(6 * SECOND, 2, 4, "died", exit_code=1)
        writer.event(3 * SECOND, 0, 2, "crash")
    with StoreWriter(directory.path, "001") as writer:
        writer.event(4 * SECOND, 1, 3, "missing", awaited=[2])
        writer.event(6 * SECOND, 1, 5, "missing", awaited=[0, 2])
        writer.event(7 * SECOND, 1, 6, "missing", awaited=[2])
        writer.event(8 * SECOND, 1, 6, "training_error", error="out of memory on cuda:0")
    result, judgement = summary(directory)
    assert result["died"] == [
        {"node": 2, "round": 4, "reason": "killed by SIGKILL", "waited_for_by": [{"node": 1, "round": 5}]},
        {"node": 1, "round": 6, "reason": "training error: out of memory on cuda:0", "waited_for_by": []},
    ]
    assert judgement.reasons == [
        "node 2 died in round 4: killed by SIGKILL",
        "node 1 died in round 6: training error: out of memory on cuda:0",
    ]
    assert judgement.exit_code == 1
    assert summary(directory, expect={"died": [1, 2]}).judgement.exit_code == 0


def test_a_loss_that_is_not_finite_fails_wherever_it_is_told(directory: RunDirectory) -> None:
    with StoreWriter(directory.path, "fleet") as writer:
        writer.metrics(0, 1, 3, {"train_loss": float("nan")})
        writer.metrics(0, 1, 4, {"train_loss": float("inf")})
        writer.event(0, 0, 2, "not_finite")
        writer.metrics(0, None, 3, {"test_loss": float("nan")})
    assert summary(directory).judgement.reasons == [
        "node 0 had a loss that is not finite in round 2",
        "node 1 had a loss that is not finite in round 3",
        "the average model had a loss that is not finite in round 3",
    ]


def test_only_a_stall_that_is_not_over_fails(directory: RunDirectory) -> None:
    over = {"text": "node 1 waited for node 2", "over": True}
    assert summary(directory, stalls=[over]).judgement.verdict == "done"
    result, judgement = summary(directory, stalls=[over, over | {"over": False}])
    assert judgement.reasons == ["stalled at the end: node 1 waited for node 2"]
    assert len(result["stalls"]) == 2


def test_a_fleets_status_says_who_is_slowest_and_what_is_left() -> None:
    status = FleetStatus("q", "processes", "sgp", rounds=10, elapsed_s=8.0, wall_s=8.0)
    assert (status.slowest, status.left_s, status.rounds_done) == (None, None, 0)
    status.nodes = {
        0: NodeStatus(0, 100, "127.0.0.1:1", 6, Phase.RUNNING, 0.5),
        1: NodeStatus(1, 101, "127.0.0.1:2", 4, Phase.RUNNING, float("nan")),
        2: NodeStatus(2, 102, "127.0.0.1:3", 1, Phase.DIED),
    }
    status.evaluation = EvaluationStatus(4, test_accuracy=0.5)
    told = json.loads(status.to_text())
    assert (told["slowest"], told["rounds_done"], told["left_s"]) == (1, 4, 12.0)
    assert {"pid": 100, "address": "127.0.0.1:1", "round": 6}.items() <= told["nodes"][0].items()
    for node in (0, 1):
        status.nodes[node].phase = Phase.FINISHED
    assert (status.slowest, status.rounds_done, status.left_s) == (None, 10, 0.0)


def test_a_fleets_status_fits_into_fleet_json(directory: RunDirectory) -> None:
    status = FleetStatus("q", "processes", "sgp", rounds=10, nodes={1: NodeStatus(1, 5, "h:1", loss=float("inf"))})
    directory.write("fleet.json", status.to_text())
    fleet = open_run(directory.path).fleet
    assert fleet is not None
    assert fleet["nodes"] == [{"node": 1, "pid": 5, "address": "h:1", "round": 0, "phase": "starting", "loss": None}]


def test_a_node_that_was_killed_and_started_again_is_among_the_restarts(directory: RunDirectory) -> None:
    with StoreWriter(directory.path, "fleet") as writer:
        writer.event(5 * SECOND, 2, 4, "died", signal="SIGKILL", exit_code=0)
        writer.event(6 * SECOND, 2, 4, "restart", epoch=1)
        writer.event(7 * SECOND, 2, 9, "rejoin", source=0, weight=None, reason="")
    result, _ = summary(directory)
    (restart,) = result["restarts"]
    assert (restart["node"], restart["round"], restart["crashed_s"], restart["returned_s"]) == (2, 4, 5.0, 6.0)
    assert (restart["state"], restart["lost_weight"], restart["rejoined_in"]) == ("lost", None, 9)
    assert "node 2 lost its state in round 4; it rejoined in round 9 with the model of node 0" in remarks(result)


def test_a_node_that_had_no_time_to_rejoin_is_among_those_without_a_state(directory: RunDirectory) -> None:
    with StoreWriter(directory.path, "fleet") as writer:
        writer.event(5 * SECOND, 2, 4, "crash", state="lost", weight=0.75)
        writer.event(6 * SECOND, 2, 4, "restart", epoch=1)
    result, _ = summary(directory)
    (restart,) = result["restarts"]
    assert (restart["state"], restart["lost_weight"], "rejoined_in" in restart) == ("lost", 0.75, False)
    told = "node 2 lost its state in round 4, and its mass with it (w = 0.75); it returned at 6 s, and has not rejoined"
    assert told in remarks(result)
