"""What becomes of a fleet when one of its machines dies, comes back, or is cut off; what is left of it everywhere."""

from __future__ import annotations

import re
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import netdfl
from netdfl.record.judge import ExitCode
from netdfl.report.html import write_report
from netdfl.testing.world_bench import Bench, Keys, Options, events, nodes_of, until
from netdfl.testing.world_ends import NUMBERS, QUICKSTART
from netdfl.testing.world_faults import GOSSIP
from tests.machines.separated import Separated, missing
from tests.supervisor.stopping import all_wrong
from tests.warm import all_warm

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "they can be made here")
LONG: Keys = GOSSIP | {
    "rounds": 80,
    "links": {"default": {"latency": "20ms"}},
    "evaluation": {"every": 1000},
    "wait": {"deadline": "none"},
}
KEPT: Keys = {"checkpoint": {"every": 1}, "delivery": {"kind": "acknowledged", "timeout": "300ms"}}
WAITS = LONG | KEPT | {"rounds": 100_000, "failure_detector": "none"}


@pytest.fixture(scope="module")
def machines() -> Iterator[Separated]:
    """They have addresses of IPv6 alone, where this machine knows it; other tests' have some of IPv4."""
    with Separated(2, six=socket.has_dualstack_ipv6()) as machines:
        yield machines


@pytest.fixture(scope="module")
def warm_bench(machines: Separated) -> Iterator[Bench]:
    world = {"kind": "tests.machines.separated:SEPARATED", "machines": machines.told, "shared_from": "1B"}
    with Bench(Options(world={**world, "fidelity": {"relative": 100, "slack": "100s"}})) as bench, all_warm():
        yield bench


@pytest.fixture
def bench(warm_bench: Bench) -> Bench:
    """Whatever another test has made of its world."""
    warm_bench.world = dict(warm_bench.options.world)
    return warm_bench


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_numbers_are_those_of_every_world(bench: Bench, machines: Separated) -> None:
    play = QUICKSTART | {"rounds": 2}
    (ours,) = bench.fleets({"apart": play}).values()
    assert ours.result["verdict"] == "pass", ours.result["reasons"]
    assert not events(ours.run, "refused")
    local = bench.scenario("simulated", play) | {"world": {"kind": "simulated"}}
    theirs = netdfl.run(local, out=bench.folder / "simulated", page=False)
    assert ours.run.rows(NUMBERS) == theirs.run.rows(NUMBERS)
    assert list(ours.result["links"]["machines"].values()) == [[0, 1], [2, 3]]
    ways = ours.result["links"]["network"]
    assert {(way["src"], way["dst"]) for way in ways} == {tuple(machines.names), tuple(reversed(machines.names))}
    assert all(0 < way["round_trip_s"] < 1 and way["rate_bps"] > 1e6 for way in ways)
    assert "The network between machines, measured before the run" in write_report(ours.run.path).read_text()


def test_a_machine_that_dies_is_named_with_its_nodes_though_its_engine_says_nothing(
    bench: Bench, machines: Separated
) -> None:
    bench.world["tells"] = False
    running = bench.start("dies", bench.file("dies", LONG), "--no-page")
    running.until_round(3)
    machines.kill(machines.names[1])
    ended = running.wait()
    assert ended.code == ExitCode.FAIL, ended.text
    assert f"machine {machines.names[1]} is gone, and node 2, node 3 with it: the connection that it kept" in ended.text
    assert [(each["node"], each["reason"]) for each in ended.result["died"]] == [
        (node, f"machine {machines.names[1]} is gone") for node in (2, 3)
    ]
    assert [each["phase"] for each in nodes_of(ended.path)] == ["finished", "finished", "died", "died"]


def test_nodes_of_a_machine_that_is_back_rejoin(bench: Bench, machines: Separated) -> None:
    """Its cable was cut: what is there ends once it has it back, and lives anew.

    It stays away for longer than a stall takes to be seen: the others say that they wait, and wait.
    """
    bench.world |= {"rejoin": True, "tells": False, "gone_after": "2s"}
    running = bench.start("back", bench.file("back", WAITS), "--no-page")
    running.until_round(3)
    first_lives = [each["pid"] for each in nodes_of(running.path)[2:]]
    machines.unplug(machines.names[1])
    phases = lambda: [each["phase"] for each in nodes_of(running.path)]  # noqa: E731
    over = lambda: running.process.poll() is not None  # noqa: E731
    until(lambda: list(running.path.glob("stalls/*")), over)
    assert all(map(lives, first_lives))
    machines.plug_in(machines.names[1])
    until(lambda: not any(map(lives, first_lives)), over)
    until(lambda: phases()[2:] == ["running", "running"], over)
    running.until_round(10)
    ended = running.end(signal.SIGINT)
    assert "wait in round" in ended.text
    assert "which died and may return until" in ended.text
    assert f"machine {machines.names[1]} is gone, and node 2, node 3 with it: its system has answered" in ended.text
    assert f"machine {machines.names[1]} is back" in ended.text
    assert sorted(node for _, node, _, _ in events(netdfl.open_run(ended.path), "restart")) == [2, 3]


@pytest.mark.soak  # it waits for seconds
def test_a_machine_that_stays_away_is_waited_for_no_longer_than_was_said(bench: Bench, machines: Separated) -> None:
    bench.world |= {"rejoin": True, "rejoin_within": "4s"}
    running = bench.start("away", bench.file("away", WAITS), "--no-page")
    running.until_round(3)
    machines.power_off(machines.names[1])
    ended = running.wait()
    machines.power_on(machines.names[1])
    assert ended.code == ExitCode.FAIL, ended.text
    one_or_both = r"(nodes 2 and 3(, which)? crashed and do|node [23](, which)? crashed and does) not return"
    assert re.search(one_or_both, ended.text), ended.text


@pytest.mark.soak  # it waits for seconds
def test_a_cable_that_is_cut_for_seconds_is_a_partition(bench: Bench, machines: Separated) -> None:
    play = LONG | {"wait": {"deadline": "500ms"}}
    running = bench.start("cut", bench.file("cut", play), "--no-page")
    running.until_round(3)
    machines.unplug(machines.names[1])
    time.sleep(4)  # the cable is out that long
    machines.plug_in(machines.names[1])
    ended = running.wait()
    assert ended.result["died"] == ended.result["unfinished"] == [], ended.text
    assert [each["phase"] for each in nodes_of(ended.path)] == ["finished"] * 4


@pytest.mark.soak
def test_nothing_lives_on_after_a_supervisor_that_was_killed(bench: Bench) -> None:
    with bench.looking("orphans"):
        running = bench.start("orphans", bench.file("orphans", LONG | {"rounds": 100_000}), "--no-page")
        running.until_round(3)
        running.end(signal.SIGKILL)
    assert not bench.left["orphans"].get("processes"), bench.left


def test_a_node_or_a_supervisor_that_is_stopped_as_a_node_crashes_changes_nothing(bench: Bench) -> None:
    """What a node has written travels, and lies where nobody reads it yet; no machine is taken for gone meanwhile."""
    steps = ("the supervisor hears of the round before a crash", "a node has said that it crashes")
    world = bench.world | {"gone_after": "2s"}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # machines write to no other of this machine's
        assert all_wrong(dict.fromkeys(steps, 4.0), Path(folder), world=world) == {}
