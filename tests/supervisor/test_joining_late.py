"""A node that joins late: absent until then, named so, with a neighbor's model and the weight 1 from then on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from netdfl.core.control import Order
from netdfl.core.errors import InputError, ScenarioError
from netdfl.explore.execute import Executor
from netdfl.explore.observed import observe
from netdfl.node.checkpoint import HEADER
from netdfl.record.history import read_outages
from netdfl.record.judge import ExitCode
from netdfl.report.words import remarks
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.standalone.request import check_joins
from netdfl.supervisor.resumption import find_resumption
from netdfl.worlds.simulated.world import SimulatedWorld

BASE = """
schema: netdfl/1
name: late
nodes: 6
rounds: 24
world: {kind: simulated, compute: 10ms}
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: sgp
topology: {kind: random_push, out_neighbors: 2}
links: {default: {latency: 5ms}}
delivery: acknowledged
failure_detector: oracle
"""
ONE = "rejoin_weight: 1"
CLOCK, ROUND = "{at: 100ms, join: 3}", "{at_round: 7, join: 3}"


def fleet(out: Path, event: str, *sets: str) -> FinishedRun:
    return run(loads(f"{BASE}events: [{event}]\n", sets), out=out / "run", page=False)


def kinds(finished: FinishedRun, node: int) -> dict[str, tuple[float, int, Any]]:
    rows = finished.run.rows("SELECT kind, at_s, round, details FROM events WHERE node = ?", [node])
    return {kind: (at_s, round, json.loads(details)) for kind, at_s, round, details in rows}


def test_nodes_know_who_is_absent_before_they_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a node of a busy machine sends its first share to nobody, as its start is over before it hears of it."""
    orders: list[tuple[int, str]] = []
    obey = SimulatedWorld.order

    def order(self: SimulatedWorld, node: int, order: Order) -> None:
        orders.append((node, type(order).__name__))
        obey(self, node, order)

    monkeypatch.setattr(SimulatedWorld, "order", order)
    fleet(tmp_path, CLOCK)
    for node in (0, 1, 2, 4, 5):
        assert [what for to, what in orders if to == node][:3] == ["Peers", "Gone", "Start"]


@pytest.mark.parametrize(("event", "joins"), [(CLOCK, {"joins_at_s": 0.1}), (ROUND, {"joins_at_round": 7})])
def test_a_node_is_absent_until_it_joins_and_brings_its_own_weight(
    tmp_path: Path, event: str, joins: dict[str, float]
) -> None:
    finished = fleet(tmp_path, event)
    assert finished.exit_code == ExitCode.PASS, finished.result["reasons"]
    told = kinds(finished, 3)
    assert told["absent"] == (0.0, 0, joins)
    assert not {"crash", "restart", "died"} & told.keys()
    at_s, (_, first, said) = told["join"][0], told["rejoin"]
    begun = finished.run.rows(
        "SELECT max(round) FROM metrics WHERE name = 'round_s' AND node <> 3 AND at_s <= ?", [at_s]
    )
    assert first >= begun[0][0] + 1
    assert at_s == pytest.approx(0.1, abs=1e-9) if event == CLOCK else first >= 8
    own = [r for (r,) in finished.run.rows("SELECT round FROM metrics WHERE name = 'round_s' AND node = 3")]
    assert sorted(own) == list(range(first, 24))
    assert finished.result["weight_sum"] == pytest.approx(1, abs=1e-12)
    assert finished.result["warnings"] == []
    (entry,) = finished.result["restarts"]
    assert (entry["state"], entry["model_of"], entry["new_weight"]) == ("none", said["source"], 1)
    assert list(remarks(finished.result)) == [
        f"node 3 joined at {at_s:.4g} s, in round {first}, with the model of node {said['source']} and w = 1"
    ]
    assert read_outages(finished.run.rows) == [(3, "absent", 0.0, at_s)]


def test_the_others_do_not_wait_for_a_node_that_the_oracle_says_is_absent(tmp_path: Path) -> None:
    """Nor send to it; the same fleet without that node at all makes its first rounds in the same time."""
    finished = fleet(tmp_path, "{at: 100ms, join: 3}", "wait.deadline=none")
    early = "SELECT count(*) FROM messages WHERE dst = 3 AND sent_s < 0.1"
    assert finished.run.rows(early) == [(0,)]
    slow = "SELECT count(*) FROM waits WHERE until_s < 0.1 AND until_s - since_s > 0.03"
    assert finished.run.rows(slow) == [(0,)]


@pytest.mark.parametrize("event", ["{at: 35ms, join: 3}", "{at_round: 7, join: 3}"])
@pytest.mark.parametrize("method", [("algorithm=dpsgd", "topology=full"), ("algorithm=sgp",)])
def test_fleets_in_step_go_on_with_who_joins(tmp_path: Path, event: str, method: tuple[str, ...]) -> None:
    """Without any deadline: the others wait for its messages from its first round on, and it for theirs."""
    spread = "links.default.latency={dist: lognormal, mean: 5ms, jitter: 4ms}"
    finished = fleet(tmp_path, event, "wait.deadline=none", "delivery=plain", spread, *method)
    assert finished.exit_code == ExitCode.PASS, finished.result["reasons"]
    assert finished.result["stalls"] == []
    assert finished.run.rows("SELECT count(*) FROM events WHERE kind = 'missing'") == [(0,)]


def test_who_never_learns_of_the_absence_waits_and_is_told_when_it_ends(tmp_path: Path) -> None:
    """By the clock the wait ends with the join; by a round that nobody reaches it never does."""
    sets = ("algorithm=dpsgd", "topology=ring", "delivery=plain", "failure_detector=none", "wait.deadline=none")
    never = fleet(tmp_path / "never", ROUND, *sets)
    assert never.exit_code == ExitCode.FAIL
    (reason,) = never.result["reasons"]
    assert "for node 3, which joins in round 7" in reason
    assert not any(word in reason for word in ("crash", "died", "return"))
    assert list(remarks(never.result))[-1].endswith("first events[0], join at round 7")
    comes = fleet(tmp_path / "comes", "{at: 20s, join: 3}", *sets)
    (first, _, last) = [stall["text"] for stall in comes.result["stalls"]]
    assert "for node 3, which joins at 20 s" in first
    assert "It is over" in first
    assert "for node 3, which joined late and is past that round" in last
    assert not any("crash" in stall["text"] or "lost" in stall["text"] for stall in comes.result["stalls"])


def test_a_run_goes_on_for_who_joins_after_all_others_have_finished(tmp_path: Path) -> None:
    finished = fleet(tmp_path, "{at: 60s, join: 3}")
    nodes = json.loads((finished.path / "fleet.json").read_text())["nodes"]
    assert {each["phase"] for each in nodes} == {"finished"}
    assert kinds(finished, 3)["join"][0] == pytest.approx(60)
    assert finished.result["died"] == finished.result["unfinished"] == []


def test_a_crash_after_the_join_is_one_of_a_node_like_any_other(tmp_path: Path) -> None:
    back = "{at: 160ms, crash: 3, restart_after: 30ms, state: lost, rejoin_weight: 1}"
    finished = fleet(tmp_path, f"{CLOCK}, {back}")
    assert [each["state"] for each in finished.result["restarts"]] == ["none", "lost"]
    lost = finished.result["restarts"][1]["lost_weight"]
    assert 6 * finished.result["weight_sum"] == pytest.approx(6 - lost + 1, abs=1e-12)


@pytest.mark.parametrize(
    ("events", "sets", "said"),
    [
        (["{at: 1s, join: 3}", "{at: 3s, join: 2..3}"], (), (1, "node 3 would join, which joins by events[0] at 1s")),
        (["{at: 1s, every: 1s, count: 2, join: 3}"], (), (0, "at 2s node 3 would join")),
        (["{at_round: 24, join: 3}"], (), (0, "after the end of the run (24 rounds)")),
        (["{at: 5s, join: 3}", "{at: 5s, crash: 3}"], (), (1, "at 5s it would crash node 3, which joins at 5s only")),
        (["{at: 5s, join: 3}", "{at: 4s, for: 2s, pause: 3}"], (), (1, "at 4s it would pause node 3")),
        (["{at_round: 5, join: 3}", "{at_round: 5, crash: 3}"], (), (1, "at round 5 it would crash node 3")),
        (["{at: 5s, for: 1s, join: 3}"], (), (0, "joins at a moment and stays")),
        (["{at: 5s, join: 6}"], ("algorithm=fedavg", "topology=star", "delivery=plain"), (0, "node 6 is the server")),
        (["{at: 5s, join: 0..2}", "{at_round: 2, join: 3..5}"], (), (1, "all nodes would join late")),
        (["{at: 5s, join: 3}"], ("delivery=running_sums", "topology.redraw_every=0"), (None, "no join")),
    ],
)
def test_mistakes_are_refused_at_their_entry(events: list[str], sets: Sequence[str], said: tuple[Any, str]) -> None:
    index, words = said
    with pytest.raises(ScenarioError) as refused:
        loads(f"{BASE}events: [{', '.join(events)}]\n", sets)
    lines = f"{BASE}events: [{', '.join(events)}]\n".splitlines()
    (problem,) = [each for each in refused.value.problems if words in str(each)]
    begins = [lines[-1].index(events[0]), lines[-1].rindex(events[-1])]
    place = None if index is None else problem.column - 1 - begins[index]
    assert place is None or (problem.line == len(lines) and 0 <= place < len(events[index]))


def test_events_after_a_join_and_of_other_nodes_before_it_are_fine() -> None:
    after = ["{at: 5s, join: 3}", "{at: 6s, crash: 3}", "{at: 1s, crash: 2}", "{at_round: 1, for: 1s, pause: 3}"]
    assert len(loads(f"{BASE}events: [{', '.join(after)}]\n").events) == 4


def test_a_search_plays_it_as_the_run_does_and_counts_the_weight_it_brings_as_its_own() -> None:
    for events, new in ((ROUND, 0), (f"{ROUND}, {{at: 300ms, crash: 3, restart_after: 9ms, state: lost, {ONE}}}", 1)):
        explored = Executor().run(loads(f"{BASE}events: [{events}]\n"))
        assert [each.node for each in explored.rows.events if each.kind == "join"] == [3]
        assert observe(explored.rows).new_weight == new


def test_nodes_by_hand_are_refused_a_join_that_nobody_would_carry_out() -> None:
    check_joins(loads(BASE))
    with pytest.raises(InputError, match=r"events\[0\]: nodes without a supervisor wait for all others"):
        check_joins(loads(f"{BASE}events: [{CLOCK}]\n"))


def test_a_killed_run_goes_on_with_those_that_had_joined_and_waits_for_the_others(tmp_path: Path) -> None:
    scenario = loads(f"{BASE}events: [{CLOCK}, {{at_round: 23, join: 4}}]\n")
    finished = run(scenario, out=tmp_path / "run", page=False)
    folder = finished.path / "checkpoints"
    folder.mkdir()
    for node in range(6):
        state = json.dumps({"tuple": [{"fields": {"round": 9}}, None]})
        save_file({"x": np.zeros(1)}, folder / f"{node:03d}.safetensors", metadata={HEADER: state})
    assert find_resumption(finished.run, scenario).absent == set()
    (folder / "004.safetensors").unlink()
    before = [row for row in finished.run.rows("SELECT node FROM events WHERE kind = 'join'")]
    assert sorted(before) == [(3,), (4,)]
    later = loads(f"{BASE}events: [{CLOCK}, {{at_round: 23, join: 5}}]\n")
    found = find_resumption(finished.run, later)
    assert (found.absent, found.down, found.doubt) == ({5}, set(), "")
