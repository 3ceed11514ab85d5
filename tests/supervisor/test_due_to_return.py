"""A node that is down and due to return counts: for who returns before it, and before a run may end without it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from netdfl.diagnosis import ending
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.testing.world_bench import events, rounds_played

CHAIN = """
schema: netdfl/1
name: chain
nodes: 3
rounds: 6
world: {kind: simulated, compute: 10ms}
task: {kind: consensus, dim: 4}
algorithm: sgp
topology: {kind: edge_list, edges: [[0, 1], [1, 2]]}
delivery: {kind: acknowledged, timeout: 100ms, attempts: 200}
wait: {deadline: none}
failure_detector: none
links: {default: {latency: 5ms}}
events:
  - {at: 12ms, crash: 0, restart_after: 1s}
  - {at: 32ms, crash: 1, restart_after: 3s}
"""
STAR = """
schema: netdfl/1
name: star
nodes: 3
rounds: 8
world: {kind: simulated, compute: 10ms}
task: {kind: consensus, dim: 4}
algorithm: fedavg
topology: star
wait: {for: {quorum: 1}, deadline: none}
failure_detector: none
links: {default: {latency: 5ms}}
events: [{at_round: 5, crash: 0, restart_after: 40s}]
"""
STALLS = """
schema: netdfl/1
name: stalls
nodes: 4
rounds: 8
world: {kind: simulated, compute: 10ms}
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: {kind: edge_list, edges: [[0, 1], [1, 2], [2, 0], [2, 3]]}
wait: {deadline: none}
failure_detector: none
links: {default: {latency: 5ms}}
events:
  - {at_round: 2, for_rounds: 1, link: "0->1", loss: 1}
  - {at_round: 3, crash: 3, restart_after: 100s}
expect: {stall: some}
"""


def fleet(out: Path, scenario: str, *sets: str) -> FinishedRun:
    return run(loads(scenario, sets), out=out, page=False)


def test_who_returns_leaves_out_no_round_of_one_that_is_still_down_and_will_need_it(tmp_path: Path) -> None:
    finished = fleet(tmp_path / "run", CHAIN)
    assert finished.result["verdict"] in ("pass", "done"), finished.result["reasons"]
    assert all(rounds_played(finished.run, node) == list(range(6)) for node in range(3))
    assert finished.result["weight_sum"] == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("rejoin", "made"), [("catch_up", 6), ("replay", 8)])
def test_a_client_that_is_due_to_return_has_its_time_after_its_servers_end(
    tmp_path: Path, rejoin: str, made: int
) -> None:
    again = "delivery={kind: acknowledged, timeout: 500ms, attempts: 200}"
    finished = fleet(tmp_path / "run", STAR, f"events.0.rejoin={rejoin}", again)
    ((returned_s,),) = finished.run.rows("SELECT at_s FROM events WHERE kind = 'restart'")
    assert finished.result["virtual_duration_s"] >= returned_s > 40
    assert rounds_played(finished.run, 0) == list(range(made))
    assert finished.result["unfinished"] == []


def test_who_crashed_in_the_last_round_ends_it_alone_where_all_others_are_done(tmp_path: Path) -> None:
    """What it waits for was lost while it was down, and nobody sends it again."""
    finished = fleet(tmp_path / "run", STAR, "events.0.at_round=7", "delivery=plain")
    assert rounds_played(finished.run, 0) == list(range(8))
    assert finished.result["verdict"] == "done", finished.result["reasons"]


def test_so_has_one_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOST_AFTER_SERVER_NS", 10**9)
    finished = fleet(tmp_path / "run", STAR, "world={kind: processes}", "events.0.restart_after=3s")
    assert [node for _, node, _, _ in events(finished.run, "restart")] == [0]
    assert finished.result["verdict"] == "done", finished.result["reasons"]


def test_a_stall_for_good_ends_no_run_to_which_a_node_is_to_return(tmp_path: Path) -> None:
    finished = fleet(tmp_path / "run", STALLS)
    assert [node for _, node, _, _ in events(finished.run, "restart")] == [3]
    assert finished.result["verdict"] == "pass", finished.result["reasons"]


def test_each_stall_that_is_skipped_is_found_as_soon_as_the_first(tmp_path: Path) -> None:
    """Node 2 hears nothing of node 1 and takes it for gone, node 1 waits for it in each round."""
    sets = ("topology=full", "rounds=8", "events=[]", "links.1->2={loss: 1}", "wait.on_stall=skip", "delivery=plain")
    finished = fleet(
        tmp_path / "run", CHAIN, "algorithm=dpsgd", *sets, "failure_detector={kind: heartbeat, every: 500ms, misses: 5}"
    )
    at = [at_s for (at_s,) in finished.run.rows("SELECT at_s FROM events WHERE kind = 'recovered' ORDER BY at_s")]
    gaps = [after - before for before, after in pairwise(at)]
    assert len(gaps) >= 6
    assert max(gaps) < 2 * min(gaps)
