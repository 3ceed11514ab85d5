"""The simulated world as a whole: virtual durations, faults, verdicts, evaluation."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_scenario import Run, small

from netdfl.core.errors import InputError, RunError
from netdfl.core.rng import Streams
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import WELL
from netdfl.record.status import FleetStatus
from netdfl.record.store import StoreWriter
from netdfl.report.words import remarks
from netdfl.running.display import SilentDisplay
from netdfl.running.supervise import supervise
from netdfl.worlds.simulated.arithmetic import exact_arithmetic
from netdfl.worlds.simulated.compute import slow_nodes
from netdfl.worlds.simulated.training import VirtualWorker

FAULTY = (
    "nodes=6",
    "rounds=12",
    "world.compute=300ms",
    "wait.deadline=2s",
    "links={default: {loss: 10%, latency: {dist: lognormal, mean: 20ms, jitter: 5ms}, rate: 1Mbit}}",
    "events=[{at: 1s, crash: 1, restart_after: 1s}, {at_round: 4, pause: 3, for: 2s}, "
    "{at: 2s, for: 1s, link: '2--3', state: down_hold}]",
)


def test_a_perfect_network_takes_no_virtual_time(simulated: Run) -> None:
    result = simulated().result
    assert result["verdict"] in WELL
    assert result["virtual_duration_s"] == 0
    assert (result["messages"]["sent"], result["messages"]["delivered"]) == (32, 32)


def test_rounds_take_the_mean_of_the_slowest_cycle(simulated: Run) -> None:
    """0 -> 1 -> 0 takes 100 + 50 + 100 + 20 ms for two rounds, and no other cycle takes longer."""
    result = simulated("world.compute=100ms", "links={default: {latency: 20ms}, '0->1': {latency: 50ms}}").result
    assert result["virtual_duration_s"] == pytest.approx(2 * (0.1 + 0.05) + 2 * (0.1 + 0.02), abs=1e-12)


def test_a_straggler_slows_its_neighbors_from_the_next_round_on(simulated: Run) -> None:
    result = simulated("world.compute=100ms", "world.stragglers={nodes: [2], factor: 3}").result
    assert result["virtual_duration_s"] == pytest.approx(4 * 0.3, abs=1e-12)


def test_compute_times_come_from_named_streams(simulated: Run) -> None:
    drawn = "world.compute={kind: lognormal, mean: 300ms, jitter: 100ms}"
    first, again, other = simulated(drawn), simulated(drawn), simulated(drawn, "seed=4")
    assert first.result["virtual_duration_s"] == again.result["virtual_duration_s"]
    assert first.result["virtual_duration_s"] != other.result["virtual_duration_s"]
    assert first.result["event_log_hash"] == again.result["event_log_hash"] != other.result["event_log_hash"]


def test_measured_times_are_recorded_and_replay_exactly(simulated: Run) -> None:
    first = simulated("world.compute=measured")
    file = first.path / "compute.json"
    assert len(json.loads(file.read_text())["train_ns"]) == 4
    again = simulated(f"world.compute={{kind: measured, file: {file}}}")
    assert again.result["event_log_hash"] == first.result["event_log_hash"]
    assert again.result["virtual_duration_s"] > 0


def test_measured_times_of_too_few_nodes_are_refused(simulated: Run, tmp_path: Path) -> None:
    file = tmp_path / "compute.json"
    file.write_text('{"train_ns": [1]}')
    with pytest.raises(InputError, match="times of 1 nodes"):
        simulated(f"world.compute={{kind: measured, file: {file}}}")


def test_stragglers_are_the_listed_ones_and_a_drawn_share() -> None:
    slow = slow_nodes(Streams(3), 20, factor=4.0, fraction=0.25, nodes=[19])
    assert 19 in slow
    assert len(slow) in (5, 6)
    assert set(slow.values()) == {4.0}


def test_a_crashed_node_comes_back_with_its_state_and_finishes(simulated: Run) -> None:
    finished = simulated(*FAULTY)
    assert finished.result["verdict"] in WELL
    events = finished.run.rows("SELECT kind, node, at_s FROM events WHERE kind IN ('crash', 'restart') ORDER BY at_s")
    assert events == [("crash", 1, 1.0), ("restart", 1, 2.0)]
    last = dict(finished.run.rows("SELECT node, max(round) FROM metrics WHERE name = 'round_s' GROUP BY node"))
    assert last == dict.fromkeys(range(6), 11)


def test_another_seed_meets_other_faults(simulated: Run) -> None:
    assert simulated(*FAULTY).result["event_log_hash"] != simulated(*FAULTY, "seed=4").result["event_log_hash"]


def test_a_full_disk_ends_the_run_and_says_so(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(StoreWriter, "metrics", full)
    finished = simulated()
    assert finished.exit_code == 4
    assert "the disk is full" in finished.result["reasons"][0]


def test_a_paused_node_does_nothing_and_loses_nothing(simulated: Run) -> None:
    finished = simulated("world.compute=100ms", "events=[{at: 150ms, for: 1s, pause: 2}]")
    assert finished.result["messages"]["delivered"] == finished.result["messages"]["sent"]
    assert finished.result["virtual_duration_s"] == pytest.approx(1.4, abs=1e-12)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_pauses_that_follow_each_other_are_one(simulated: Run, seed: int) -> None:
    """At the moment between them the first ends before the second begins, whatever the seed orders there."""
    base = ("world.compute=100ms", f"seed={seed}")
    one = simulated(*base, "events=[{at: 150ms, for: 2s, pause: 2}]").result
    two = simulated(*base, "events=[{at: 1150ms, for: 1s, pause: 2}, {at: 150ms, for: 1s, pause: 2}]").result
    assert one["virtual_duration_s"] == two["virtual_duration_s"] > 2


def test_slowed_down_nodes_take_longer(simulated: Run) -> None:
    finished = simulated("world.compute=100ms", "events=[{at_round: 2, slow_down: 1, factor: 5}]")
    assert finished.result["virtual_duration_s"] == pytest.approx(0.2 + 2 * 0.5, abs=1e-12)


def test_survivors_learn_of_a_crash_only_from_their_detector(simulated: Run) -> None:
    crash = ("world.compute=100ms", "wait.deadline=5s", "events=[{at: 150ms, crash: 2}]", "expect={stall: any}")
    told = simulated(*crash, "failure_detector={kind: oracle}").result
    blind = simulated(*crash, "failure_detector={kind: none}").result
    assert told["virtual_duration_s"] < 1
    assert blind["virtual_duration_s"] > 5


def test_a_lost_message_without_a_deadline_ends_at_once_and_fails(simulated: Run) -> None:
    finished = simulated("links={'0->1': {loss: {model: drop_list, messages: [{round: 1}]}}}")
    assert finished.result["verdict"] == "fail"
    assert any("0" in reason and "1" in reason for reason in finished.result["reasons"])


def test_the_fleet_ends_when_its_nodes_do_and_says_what_was_in_flight(simulated: Run) -> None:
    finished = simulated("wait.for=any", "links={default: {latency: 1ms}, '0->1': {latency: 10s}}")
    assert finished.result["messages"]["unfinished"] > 0


def test_no_more_than_what_is_needed_is_evaluated(simulated: Run) -> None:
    finished = simulated("rounds=6", "evaluation.every=4")
    assert finished.run.rows("SELECT round FROM metrics WHERE name = 'error' ORDER BY round") == [(3,), (5,)]


def test_interrupting_keeps_what_was_recorded(tmp_path: Path) -> None:
    class Impatient(SilentDisplay):
        def update(self, status: FleetStatus) -> None:
            if status.elapsed_s and not interrupted:
                interrupted.append(status.rounds_done)
                os.kill(os.getpid(), signal.SIGINT)

    interrupted: list[int] = []
    scenario = small("rounds=1000000", "world.compute=1s")
    directory = RunDirectory.create(tmp_path, "small", 3, tmp_path / "run")
    outcome = supervise(scenario, directory, Impatient())
    assert outcome.interrupted
    assert outcome.figures.virtual_duration_s is not None
    assert 0 < outcome.figures.virtual_duration_s < 1000000
    assert list((tmp_path / "run" / "store").glob("messages-*"))


def test_arithmetic_is_pinned_and_put_back() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(2)
    with exact_arithmetic():
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before[0])
    assert torch.are_deterministic_algorithms_enabled() == before[1]


def test_heartbeats_cross_the_links_cost_bytes_and_tell_who_is_gone(simulated: Run) -> None:
    finished = simulated(
        "world.compute=300ms",
        "rounds=20",
        "wait.deadline=5s",
        "failure_detector={kind: heartbeat, every: 200ms, misses: 3}",
        "links={default: {latency: 20ms}}",
        "events=[{at: 2s, crash: 1}]",
    )
    told = finished.run.rows("SELECT node, at_s FROM events WHERE kind = 'gone' ORDER BY node")
    assert [node for node, _ in told] == [0, 2]
    assert all(2.4 <= at_s <= 3.0 for _, at_s in told)
    kinds = dict(finished.run.rows("SELECT kind, sum(nbytes) FROM messages GROUP BY kind"))
    assert kinds["heartbeat"] > 0
    assert finished.result["virtual_duration_s"] < 10


def test_a_node_that_dies_in_training_falls_silent(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    train = VirtualWorker.run

    async def breaks(self: VirtualWorker, what: str, function: Any, *args: Any) -> Any:
        if what == "train" and (self.node, self.round()) == (0, 1):
            raise RuntimeError("out of memory")
        return await train(self, what, function, *args)

    monkeypatch.setattr(VirtualWorker, "run", breaks)
    detector = "failure_detector={kind: heartbeat, every: 50ms, misses: 3}"
    finished = simulated("world.compute=100ms", "wait.deadline=60s", detector)
    assert [death["node"] for death in finished.result["died"]] == [0]
    told = finished.run.rows("SELECT node, details FROM events WHERE kind = 'gone' ORDER BY node")
    assert [(node, json.loads(details)["peer"]) for node, details in told] == [(1, 0), (3, 0)]


@pytest.mark.parametrize(
    "events",
    [
        "{at: 200ms, for: 200ms, pause: 0}, {at: 300ms, crash: 0}",
        "{at: 300ms, crash: 0}, {at: 350ms, for: 200ms, pause: 0}",
    ],
)
def test_a_dead_node_is_neither_paused_nor_resumed(simulated: Run, events: str) -> None:
    blind = ("links={default: {latency: 10ms}}", "failure_detector={kind: none}", "wait.deadline=300ms")
    finished = simulated("world.compute=100ms", "rounds=6", *blind, f"events=[{events}]", "expect={stall: any}")
    late = finished.run.rows("SELECT DISTINCT fate FROM messages WHERE dst = 0 AND sent_s > 0.3")
    assert late == [("failed:gone",)]
    told = finished.run.rows("SELECT kind FROM events WHERE kind IN ('pause', 'resume') AND at_s > 0.3")
    assert told == []


def test_a_node_that_restarts_between_pause_and_resume_goes_on(simulated: Run) -> None:
    events = "{at: 150ms, for: 1s, pause: 0}, {at: 250ms, crash: 0, restart_after: 100ms}"
    finished = simulated("world.compute=100ms", "wait.deadline=300ms", f"events=[{events}]")
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    ((first,),) = finished.run.rows("SELECT min(sent_s) FROM messages WHERE src = 0 AND epoch = 1")
    assert first < 1


@pytest.mark.parametrize("state", ["kept", "lost"])
def test_a_node_that_crashes_after_its_last_round_returns_too(simulated: Run, state: str) -> None:
    crash = f"events=[{{at: 1100ms, crash: 0, restart_after: 50ms, state: {state}}}]"
    finished = simulated("world.compute=100ms", "world.stragglers={nodes: [2], factor: 3}", crash)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    told = finished.run.rows("SELECT kind, at_s FROM events WHERE node = 0 AND kind IN ('crash', 'restart')")
    assert told == [("crash", 1.1), ("restart", 1.15)]
    assert [(each["phase"], each["round"]) for each in finished.run.fleet["nodes"]] == [("finished", 3)] * 4


def test_events_that_never_come_are_said(simulated: Run) -> None:
    events = "events=[{at: 10h, crash: 1}, {at: 150ms, for: 10h, slow_down: 2, factor: 2}]"
    result = simulated("rounds=5", "world.compute=100ms", events).result
    assert result["events_not_reached"]["count"] == 1
    assert list(remarks(result)) == [
        "of 1 entry of events nothing came, as the nodes ended at 0.8 s: first events[0], crash at 36000 s"
    ]
