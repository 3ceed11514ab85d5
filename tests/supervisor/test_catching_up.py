"""A node that returns with its state leaves out the rounds that all others have made, where the method permits it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: catching-up
nodes: 8
rounds: 60
world: {kind: simulated, compute: 10ms}
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: dpsgd
topology: {kind: ring}
links: {default: {latency: 5ms}}
wait: {deadline: 200ms}
events: [{at_round: 5, crash: 3, restart_after: 300ms}]
"""


def fleet(out: Path, *sets: str) -> FinishedRun:
    return run(loads(BASE, sets), out=out, page=False)


def rounds_of(finished: FinishedRun, node: int) -> list[int]:
    rows = finished.run.rows(
        f"SELECT DISTINCT round FROM metrics WHERE node = {node} AND name = 'round_s' ORDER BY round"
    )
    return [round for (round,) in rows]


def longest_s(finished: FinishedRun, *nodes: int) -> float:
    where = ", ".join(map(str, nodes))
    ((longest,),) = finished.run.rows(f"SELECT max(value) FROM metrics WHERE name = 'round_s' AND node IN ({where})")
    return float(longest)


def test_it_makes_the_round_of_its_crash_anew_and_goes_on_where_the_others_are(tmp_path: Path) -> None:
    finished = fleet(tmp_path / "run")
    made = rounds_of(finished, 3)
    assert made[:6] == [0, 1, 2, 3, 4, 5]
    assert 15 < made[6] < 50
    assert made[6:] == list(range(made[6], 60))
    ((missed,),) = finished.run.rows("SELECT details->>'missed' FROM events WHERE kind = 'catch_up' AND node = 3")
    assert int(missed) == made[6] - 6


def test_nobody_waits_for_the_rounds_that_it_missed(tmp_path: Path) -> None:
    caught, replayed = (fleet(tmp_path / how, f"events.0.rejoin={how}") for how in ("catch_up", "replay"))
    assert rounds_of(replayed, 3) == list(range(60))
    took = [finished.result["virtual_duration_s"] for finished in (caught, replayed)]
    assert took[0] < 60 * 0.015 + 0.5
    assert took[1] > took[0] + 3


def test_it_leaves_out_no_round_for_which_somebody_still_waits(tmp_path: Path) -> None:
    finished = fleet(tmp_path / "run", "wait.deadline=none", "failure_detector=none", "wait.on_stall=skip")
    assert rounds_of(finished, 3) == list(range(60))


@pytest.mark.parametrize("algorithm", ["sgp", "overlap_sgp"])
def test_its_mass_is_its_own_whatever_the_round(tmp_path: Path, algorithm: str) -> None:
    sets = (f"algorithm={algorithm}", "topology={kind: random_push, out_neighbors: 2}", "delivery=acknowledged")
    finished = fleet(tmp_path / "run", *sets, "wait.deadline=auto")
    assert len(rounds_of(finished, 3)) < 60
    assert finished.result["weight_sum"] == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("round", [0, 1])
@pytest.mark.parametrize("rejoin", ["catch_up", "replay"])
def test_the_round_made_anew_has_the_shares_of_before_whoever_joined(tmp_path: Path, rejoin: str, round: int) -> None:
    """Node 0 has given a half away and waits when node 2 joins; then it crashes. In thirds, it would give more."""
    at_ms = 55 * round
    events = (
        f"{{at_round: {round}, drop: 1->0, attempt: 0}}, {{at: {at_ms + 57}ms, join: 2}}, "
        f"{{at: {at_ms + 65}ms, crash: 0, restart_after: 50ms, state: kept, rejoin: {rejoin}}}"
    )
    three = ["nodes=3", "rounds=8", "world.compute=50ms", "algorithm=sgp", "topology={kind: full, weights: column}"]
    finished = fleet(tmp_path / "run", *three, "delivery=acknowledged", "wait={deadline: auto}", f"events=[{events}]")
    sent = dict(
        finished.run.rows(
            "SELECT epoch, list_sort(list(DISTINCT dst)) FROM messages WHERE src = 0 AND kind = 'data' "
            f"AND round = {round} GROUP BY epoch"
        )
    )
    assert sent == {0: [1], 1: [1]}
    assert finished.result["weight_sum"] == pytest.approx(1)
    assert [each["kind"] for each in finished.result["warnings"]] == []


def test_a_client_that_was_away_takes_part_again(tmp_path: Path) -> None:
    finished = fleet(tmp_path / "run", "algorithm=fedavg", "topology=star", "wait.deadline=auto")
    made = rounds_of(finished, 3)
    assert len(made) < 60
    assert made[-1] == 59


def test_where_the_method_does_not_permit_it_every_round_is_made(tmp_path: Path) -> None:
    compressed = ("algorithm=choco_sgd", "compression={kind: top_k, fraction: 0.5}")
    assert rounds_of(fleet(tmp_path / "run", *compressed), 3) == list(range(60))
    with pytest.raises(ScenarioError, match="a node can't catch up here: receivers of compressed messages"):
        loads(BASE, [*compressed, "events.0.rejoin=catch_up"])
    with pytest.raises(ScenarioError, match="a round of ad_psgd is a meeting of two nodes"):
        loads(BASE, ["algorithm=ad_psgd", "wait.deadline=auto", "events.0.rejoin=catch_up"])
    with pytest.raises(ScenarioError, match="rejoin is for nodes that kept their state"):
        loads(BASE, ["events.0.state=lost", "events.0.rejoin=replay"])


@pytest.mark.soak  # simulated fleets above do, and crash_and_return_with_kept_state is tried in processes
def test_in_processes_it_catches_up_too(tmp_path: Path) -> None:
    sets = ("world={kind: processes}", "nodes=4", "rounds=50", "links={default: {latency: 60ms}}")
    finished = fleet(tmp_path / "run", *sets, "events.0.restart_after=900ms", "wait.deadline=2s")
    made = rounds_of(finished, 3)
    assert made[:6] == [0, 1, 2, 3, 4, 5]
    assert made[6] > 10
    assert made[-1] == 49
