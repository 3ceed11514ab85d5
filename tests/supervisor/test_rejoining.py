"""A node that lost its state: its mass is gone and named, and it begins with a neighbor's model, over the links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from netdfl.algorithms.families import first_state, joining_state
from netdfl.core.errors import ScenarioError
from netdfl.host.blueprint import Blueprint
from netdfl.host.judging import judge_average
from netdfl.host.models import ModelSnapshot
from netdfl.record.judge import WELL
from netdfl.report.words import remarks
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: rejoining
nodes: 8
rounds: 20
world: {kind: simulated, compute: 10ms}
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: sgp
topology: {kind: random_push, out_neighbors: 2}
links: {default: {latency: 5ms}}
delivery: acknowledged
"""
LOST = "{at_round: 5, crash: 3, restart_after: 30ms, state: lost}"


def fleet(out: Path, *sets: str, event: str = LOST) -> FinishedRun:
    return run(loads(f"{BASE}events: [{event}]\n", sets), out=out / "run", page=False)


def restart_of(finished: FinishedRun) -> dict[str, Any]:
    (restart,) = finished.result["restarts"]
    return restart


def test_lost_and_new_mass_are_counted_and_named(tmp_path: Path) -> None:
    for weight in (0, 1):
        finished = fleet(tmp_path / str(weight), f"events.0.rejoin_weight={weight}")
        restart = restart_of(finished)
        assert restart["new_weight"] == weight
        assert 0.1 < restart["lost_weight"] < 2
        left = 8 - restart["lost_weight"] + weight
        assert 8 * finished.result["weight_sum"] == pytest.approx(left, abs=1e-12)
        (said,) = remarks(finished.result)
        assert said.startswith("node 3 lost its state in round 5, and its mass with it (w = ")
        assert said.endswith("which is new mass") == bool(weight)


@pytest.mark.parametrize("every_ms", [22, pytest.param(11, marks=pytest.mark.soak)])
def test_unread_shares_are_lost_with_the_node_and_counted(every_ms: int, tmp_path: Path) -> None:
    """It crashes by the clock, in the middle of rounds: what had come and was not read is the node's too."""
    for ms in range(40, 100, every_ms):
        event = f"{{at: {ms}ms, crash: 3, restart_after: 30ms, state: lost}}"
        finished = fleet(tmp_path / str(ms), "delivery.timeout=12ms", event=event)
        left = 8 - restart_of(finished)["lost_weight"]
        assert 8 * finished.result["weight_sum"] == pytest.approx(left, abs=1e-12)


def test_the_model_comes_over_the_links_with_their_faults_and_bytes(tmp_path: Path) -> None:
    finished = fleet(tmp_path, "links.3->4={loss: 1}")
    rows = finished.run.rows(
        "SELECT kind, src, dst, nbytes, fate FROM messages WHERE kind IN ('fetch', 'model') ORDER BY sent_s"
    )
    assert [(kind, src, dst, fate) for kind, src, dst, _, fate in rows] == [
        ("fetch", 3, 4, "dropped:loss"),
        ("fetch", 3, 5, "delivered"),
        ("model", 5, 3, "delivered"),
    ]
    assert rows[2][3] >= 4 * 8
    assert restart_of(finished)["model_of"] == 5


def test_where_nobody_answers_it_begins_with_its_initial_model_and_stays_finite_without_mass(tmp_path: Path) -> None:
    sets = ["task={kind: quadratic, dim: 4}", "links.*->3={loss: 1}", "delivery=plain", "wait.deadline=20ms"]
    finished = fleet(tmp_path, *sets, "rounds=60", "evaluation.every=20", "evaluation.local=all")
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    restart = restart_of(finished)
    assert (restart["model_of"], restart["new_weight"]) == (None, 0)
    assert "nobody answered 8 requests" in restart["reason"]
    weights = finished.run.rows("SELECT value FROM metrics WHERE node = 3 AND name = 'weight' AND round > 50")
    assert {weight for (weight,) in weights} == {0.0}


def test_one_way_links_bring_no_model_and_the_record_says_so(tmp_path: Path) -> None:
    finished = fleet(tmp_path, "topology=directed_ring", "delivery=plain", "wait.deadline=20ms")
    assert restart_of(finished)["reason"] == "no neighbor has links both ways"


@pytest.mark.parametrize("algorithm", ["dpsgd", "fedavg", "ad_psgd"])
def test_without_weights_it_begins_with_a_neighbors_model(algorithm: str, tmp_path: Path) -> None:
    sets = ["task={kind: quadratic, dim: 4}", "delivery=plain", "wait.deadline=50ms", f"algorithm={algorithm}"]
    finished = fleet(tmp_path, *sets, f"topology={'star' if algorithm == 'fedavg' else 'ring'}")
    restart = restart_of(finished)
    assert restart["model_of"] == (8 if algorithm == "fedavg" else 4)
    assert restart["new_weight"] is None
    assert "mass" not in "".join(remarks(finished.result))


REFUSED = {
    "a weight for a kept state": (["events.0.state=kept", "events.0.rejoin_weight=1"], "add state: lost"),
    "a weight where there are none": (
        ["algorithm=dpsgd", "topology=ring", "events.0.rejoin_weight=0"],
        "dpsgd has no push-sum weights",
    ),
    "half a weight": (["events.0.rejoin_weight=0.5"], "rejoin_weight"),
    "counters that are lost": (["delivery=running_sums", "topology.redraw_every=0"], "lost its counters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_way_to_return_that_can_not_be_is_refused_with_its_reason(case: str) -> None:
    sets, expected = REFUSED[case]
    with pytest.raises(ScenarioError) as error:
        loads(f"{BASE}events: [{LOST}]\n", sets)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "compression"),
    [
        ("sgp", None),
        ("sgp", "qsgd"),
        ("{name: dfedsgpsm_s, neighbors: 1}", None),
        ("dfedsgpsm", None),
        ("overlap_sgp", None),
    ],
)
def test_without_mass_it_trains_where_its_model_is_and_adds_the_step(algorithm: str, compression: str | None) -> None:
    sets = ["task={kind: quadratic, dim: 4, dtype: float64}", f"algorithm={algorithm}", "delivery=plain"]
    sets += [f"compression={compression}"] if compression else []
    blueprint = Blueprint.of(loads(BASE, sets))
    alg, task, view = blueprint.algorithm, blueprint.problem.task(3, "cpu"), blueprint.view(3, 7, frozenset())
    z = torch.tensor([3.0, -2.0, 1.0, 0.5], dtype=torch.float64)
    massless, whole = (joining_state(task.initial(), z, weight, alg, view) for weight in (0, 1))
    assert alg.mixing.weight(massless.mixing) == 0
    assert not massless.x.any()
    assert torch.equal(massless.model(alg), z)
    assert torch.equal(whole.model(alg), z)
    (_, step), (_, usual) = (state.train(alg, task.data(7), view) for state in (massless, whole))
    assert torch.allclose(step.x, usual.x - z, rtol=0, atol=1e-15)
    assert step.x.any()


def test_it_keeps_the_fetched_model_until_mass_comes() -> None:
    blueprint = Blueprint.of(loads(BASE, []))
    alg, task, view = blueprint.algorithm, blueprint.problem.task(3, "cpu"), blueprint.view(3, 7, frozenset())
    z = task.initial().new_zeros((4,)) + 1.0
    state, update = joining_state(task.initial(), z, 0, alg, view).train(alg, task.data(7), view)
    assert state.end_round(alg, update, view).z is z
    grown = state._replace(mixing=state.mixing._replace(weight=0.5))
    assert grown.end_round(alg, update, view).z is None
    assert first_state(task.initial(), alg, view).z is None


def test_a_node_without_mass_counts_in_the_average_alone() -> None:
    snapshots = [ModelSnapshot(torch.tensor([2.0, 4.0]), 2.0), ModelSnapshot(torch.tensor([1.0, 1.0]), 0.0)]
    judged = list[torch.Tensor]()
    read = {node: (lambda each=each: each) for node, each in enumerate(snapshots)}
    judge = lambda x: judged.append(x) or {"test_accuracy": 0.5}  # noqa: E731
    figures = judge_average(read, judge, lambda node, x: judge(x), 2, begun=2)
    assert [x.tolist() for x in judged] == [[1.5, 2.5], [1.0, 2.0]]
    assert figures["weight_sum"] == 1.0
    assert figures["consensus_distance"] == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("algorithm", ["dpsgd", "sgp"])
def test_who_returns_one_after_the_other_joins_the_same_round(algorithm: str, tmp_path: Path) -> None:
    """Else the sixth would rejoin in round 9, and with much churn beyond the last."""
    events = [f"{{at_round: 3, crash: {node}, restart_after: {40 + 12 * node}ms, state: lost}}" for node in range(1, 7)]
    scenario = f"{BASE}events: [{', '.join(events)}]\n"
    sets = ["nodes=12", "rounds=8", "topology=full", f"algorithm={algorithm}", "world.compute=200ms"]
    finished = run(loads(scenario, sets), out=tmp_path / "run", page=False)
    assert not finished.result["reasons"]
    assert [restart["rejoined_in"] for restart in finished.result["restarts"]] == [4] * 6
    last = finished.run.rows("SELECT DISTINCT node FROM metrics WHERE node IS NOT NULL AND round = 7")
    assert sorted(node for (node,) in last) == list(range(12))
