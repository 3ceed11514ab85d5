"""A fleet without a supervisor: it gives the numbers of the other worlds, and survives what happens to its nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hand_fleet import HandFleet

from netdfl.core.fates import FateClass
from netdfl.record.judge import ExitCode
from netdfl.record.store import StoreWriter
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from netdfl.standalone.accounts import ACCOUNTS_FILE
from netdfl.standalone.collect import collect
from netdfl.standalone.credentials import write_credentials
from netdfl.standalone.record import NodeRecord, NodeStage
from tests import data_apart

TRAINING = """
schema: netdfl/1
name: by-hand
seed: 3
nodes: 3
rounds: 4
task: {dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.5}}, model: mlp, batch_size: 32}
algorithm: {name: dpsgd, lr: 0.1}
topology: ring
wait: {deadline: none}
failure_detector: none
evaluation: {keep_models: true}
"""

CONSENSUS = """
schema: netdfl/1
name: by-hand
nodes: 3
rounds: 8
task: {kind: consensus, dim: 10}
algorithm: dpsgd
topology: full
wait: {deadline: 500ms}
"""


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[list[HandFleet]]:
    made: list[HandFleet] = []
    yield made
    for fleet in made:
        fleet.kill_all()


def events(finished: FinishedRun, *kinds: str) -> list[tuple[Any, ...]]:
    """(kind, node, round, details) in order of time."""
    rows = finished.run.rows("SELECT kind, node, round, details FROM events ORDER BY at_s")
    return [(kind, node, round, json.loads(details)) for kind, node, round, details in rows if kind in kinds]


def wait_until_round(fleet: HandFleet, node: int, round: int) -> NodeRecord:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        record = NodeRecord.read(fleet.directory(node))
        if record is not None and record.stage is NodeStage.RUNNING and record.round >= round:
            return record
        time.sleep(0.05)
    raise AssertionError(f"node {node} never began round {round}: {fleet.logs([node])}")


def wait_until_done(fleet: HandFleet, *nodes: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        records = [NodeRecord.read(fleet.directory(node)) for node in nodes]
        if all(record is not None and record.stage is NodeStage.FINISHED for record in records):
            return
        time.sleep(0.05)
    raise AssertionError(f"nodes {nodes} never finished: {fleet.logs(nodes)}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HandFleet, dict[int, int | None]]]:
    fleet = HandFleet(tmp_path_factory.mktemp("trained"), TRAINING, 3)
    fleet.start(2)
    time.sleep(0.5)  # those that are early wait for those that are late, whoever that is
    fleet.start(1, 0)
    yield fleet, fleet.end()
    fleet.kill_all()


@pytest.fixture(scope="module")
def gathered(trained: tuple[HandFleet, dict[int, int | None]], tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    fleet, codes = trained
    assert codes == {0: 0, 1: 0, 2: 0}, fleet.logs(codes)
    return collect(fleet.folder, out=tmp_path_factory.mktemp("gathered") / "run")


def test_final_parameters_are_those_of_the_simulated_world_bit_for_bit(gathered: FinishedRun, tmp_path: Path) -> None:
    simulated = run(loads(TRAINING, on="simulated"), out=tmp_path / "run", page=False)
    for node in range(3):
        mine = (gathered.path / "models" / f"{node:03d}.safetensors").read_bytes()
        assert mine == (simulated.path / "models" / f"{node:03d}.safetensors").read_bytes()
    assert gathered.result["test_accuracy"] == simulated.result["test_accuracy"]
    assert gathered.result["consensus_distance"] == simulated.result["consensus_distance"]
    data = "SELECT src, dst, round, step, nbytes FROM messages WHERE kind = 'data' ORDER BY ALL"
    assert gathered.run.rows(data) == simulated.run.rows(data)
    assert gathered.run.partition == simulated.run.partition


def test_each_node_reads_its_own_file_where_no_other_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for node in range(3):
        data_apart.write_file(tmp_path / "all", node)
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "all"))
    scenario = data_apart.scenario(3)
    simulated = run(load(scenario, on="simulated"), out=tmp_path / "simulated", page=False)
    fleet = HandFleet(tmp_path / "fleet", json.dumps(scenario), 3)
    for node in range(3):
        data_apart.write_file(tmp_path / f"of {node}", node)
        fleet.start(node, data=tmp_path / f"of {node}")
    codes = fleet.end()
    fleet.kill_all()
    assert codes == {0: 0, 1: 0, 2: 0}, fleet.logs(codes)
    gathered = collect(fleet.folder, out=tmp_path / "run", page=False)
    assert data_apart.personal(gathered.run) == data_apart.personal(simulated.run)


def test_the_gathered_run_passes_and_its_report_opens(gathered: FinishedRun) -> None:
    assert gathered.exit_code == ExitCode.PASS, gathered.result["reasons"]
    assert gathered.result["nodes"] == 3
    assert "by-hand" in (gathered.path / "report.html").read_text(encoding="utf-8")
    assert [node["phase"] for node in (gathered.run.fleet or {})["nodes"]] == ["finished"] * 3


def test_collecting_changes_nothing_and_can_be_repeated(
    trained: tuple[HandFleet, dict[int, int | None]], gathered: FinishedRun, tmp_path: Path
) -> None:
    again = collect(trained[0].folder, out=tmp_path / "run", page=False)
    assert again.result == gathered.result


def test_what_became_of_packets_is_named_in_the_result(
    trained: tuple[HandFleet, dict[int, int | None]], tmp_path: Path
) -> None:
    folder = tmp_path / "fleet"
    shutil.copytree(trained[0].folder, folder)
    (folder / "packets.json").write_text('{"edges": {"0->1": {}}, "engine": "tun", "strangers": 2}', encoding="utf-8")
    found = collect(folder, out=tmp_path / "run", page=False)
    assert found.result["links"] == {"layer": "message", "engine": "tun", "strangers": 2}
    assert json.loads((found.path / "packets.json").read_text(encoding="utf-8")) == {"0->1": {}}


def test_a_node_that_is_missing_is_named(fleets: list[HandFleet], tmp_path: Path) -> None:
    fleets.append(fleet := HandFleet(tmp_path / "fleet", CONSENSUS, 3, timeout="3s"))
    fleet.start(0, 1)
    assert fleet.end() == {0: ExitCode.UNUSABLE, 1: ExitCode.UNUSABLE}
    for node in (0, 1):
        assert f"node 2 (localhost:{fleet.ports[2]}) did not come" in fleet.logs([node])


def test_a_node_with_another_scenario_is_refused(fleets: list[HandFleet], tmp_path: Path) -> None:
    fleets.append(fleet := HandFleet(tmp_path / "fleet", CONSENSUS, 3, timeout="5s"))
    (fleet.folder / "other.yaml").write_text(CONSENSUS + "seed: 9\n", encoding="utf-8")
    fleet.start(0, 1)
    fleet.start(2, scenario="other.yaml")
    assert set(fleet.end().values()) == {ExitCode.UNUSABLE}
    assert "have all nodes read the same scenario" in fleet.logs([2])
    assert "node 2 comes with another scenario" in fleet.logs([0])


@pytest.mark.parametrize(
    ("odd", "plain", "says", "words"),
    [
        (2, False, 2, "has a certificate, but not that of node 0 of this run"),
        (0, True, 1, "speaks no TLS, and this node does"),
        pytest.param(2, True, 2, "speaks TLS, and this node does not", marks=pytest.mark.soak),
    ],
)
def test_a_node_of_other_credentials_or_of_none_is_named(
    fleets: list[HandFleet], tmp_path: Path, odd: int, plain: bool, says: int, words: str
) -> None:
    fleets.append(fleet := HandFleet(tmp_path / "fleet", CONSENSUS, 3, timeout="4s"))
    fleet.credentials.pop(odd)
    if not plain:
        fleet.credentials[odd] = write_credentials(loads(CONSENSUS), tmp_path / "others")[odd]
    fleet.start(0, 1, 2)
    assert set(fleet.end().values()) == {ExitCode.UNUSABLE}
    assert words in fleet.logs([says])


@pytest.mark.soak
def test_a_crash_of_the_schedule_and_a_return(fleets: list[HandFleet], tmp_path: Path) -> None:
    crash = "events: [{at_round: 2, crash: 1, restart_after: 200ms, state: kept}, {at_round: 3, crash: 2}]\n"
    fleets.append(fleet := HandFleet(tmp_path / "fleet", CONSENSUS + crash, 3))
    fleet.start(0, 1, 2)
    assert fleet.end(1) == {1: 137}
    fleet.start(1)
    assert fleet.end(2) == {2: 137}
    assert fleet.end() == {0: 0, 1: 0}, fleet.logs([0, 1])
    found = collect(fleet.folder, out=tmp_path / "run", page=False)
    assert found.exit_code == ExitCode.PASS, found.result["reasons"]
    happened = [(kind, node) for kind, node, *_ in events(found, "crash", "restart", "died")]
    assert sorted(happened) == [("crash", 1), ("crash", 2), ("restart", 1)]
    rounds = found.run.rows("SELECT round FROM metrics WHERE name = 'round_s' AND node = 1 ORDER BY at_s")
    assert [round for (round,) in rounds] == list(range(8))


@pytest.mark.parametrize("delivery", ["plain", "{kind: acknowledged, timeout: 100ms, attempts: 1}"])
def test_who_returns_when_all_others_are_done_does_not_wait_for_them(
    delivery: str, fleets: list[HandFleet], tmp_path: Path
) -> None:
    crash = "events: [{at_round: 2, crash: 1, restart_after: 200ms, state: kept}]\nfailure_detector: none\n"
    crash += f"delivery: {delivery}\n"
    long = CONSENSUS.replace("deadline: 500ms", "for: any, deadline: 20s") + crash
    fleets.append(fleet := HandFleet(tmp_path / "fleet", long, 3))
    fleet.start(0, 1, 2)
    assert fleet.end(1) == {1: 137}
    wait_until_done(fleet, 0, 2)
    fleet.start(1)
    assert fleet.end() == {0: 0, 1: 0, 2: 0}, fleet.logs([0, 1, 2])
    found = collect(fleet.folder, out=tmp_path / "run", page=False)
    rounds = found.run.rows("SELECT round FROM metrics WHERE name = 'round_s' AND node = 1 ORDER BY at_s")
    assert [round for (round,) in rounds] == list(range(8))
    assert found.run.rows("SELECT * FROM waits WHERE node = 1 AND round >= 3 AND ended = 'deadline'") == []
    assert {(node, details["peer"]) for _, node, _, details in events(found, "gone")} == {(1, 0), (1, 2)}


def test_killed_nodes_are_named_and_rejoin_with_their_record_and_without(
    fleets: list[HandFleet], tmp_path: Path
) -> None:
    slow = CONSENSUS.replace("rounds: 8", "rounds: 40") + "checkpoint: {every: 1}\nlinks: {default: {latency: 200ms}}\n"
    fleets.append(fleet := HandFleet(tmp_path / "fleet", slow, 3))
    fleet.start(0, 1, 2)
    for node in (0, 1):
        wait_until_round(fleet, node, 2)
        fleet.running[node].kill()
        fleet.ended(node)
    shutil.rmtree(fleet.directory(0))
    fleet.start(0, 1)
    assert fleet.end() == {0: 0, 1: 0, 2: 0}, fleet.logs(range(3))
    found = collect(fleet.folder, out=tmp_path / "run", page=False)
    assert found.exit_code == ExitCode.FAIL
    died = {death["node"]: death["reason"] for death in found.result["died"]}
    assert died == {0: "its record is gone, and it began again", 1: "it was killed, and began again"}
    last = found.run.rows("SELECT node, max(round) FROM metrics WHERE name = 'round_s' GROUP BY node ORDER BY node")
    assert last == [(0, 39), (1, 39), (2, 39)]
    epochs = found.run.rows("SELECT src, max(epoch) FROM messages WHERE fate = 'delivered' GROUP BY src ORDER BY src")
    assert epochs == [(0, 1), (1, 1), (2, 0)]


@pytest.mark.parametrize(("ended", "listed"), [(NodeStage.FINISHED, "stalls"), (NodeStage.RUNNING, "deadlocks")])
def test_a_deadlock_that_nodes_found_themselves_is_in_the_result(
    trained: tuple[HandFleet, dict[int, int | None]], tmp_path: Path, ended: NodeStage, listed: str
) -> None:
    folder = tmp_path / "fleet"
    shutil.copytree(trained[0].folder, folder)
    record = NodeRecord.read(folder / "nodes" / "1")
    assert record is not None
    record.stage = ended
    record.write(folder / "nodes" / "1")
    for node in (0, 1):
        with StoreWriter(folder / "nodes" / str(node), f"{node:03d}") as store:
            held: Any = {"roots": [0, 1], "culprits": [0, 1], "behind": [], "what": "nodes 0 and 1 wait for each other"}
            held["remedies"] = ["wait.deadline: auto"]
            store.event(9 * 10**9, node, 3, "probed", cause="deadlock", suspected=False, detection_s=4.0, **held)
    found = collect(folder, out=tmp_path / "run", page=False)
    (stall,) = found.result[listed]
    said = "nodes 0 and 1 wait for each other. Since 5 s. `wait.deadline: auto` would go on."
    assert (stall["text"], stall["began_s"], stall["found_s"]) == (said, 5.0, 9.0)
    assert stall["over"] == (ended is NodeStage.FINISHED)
    assert (found.exit_code == ExitCode.PASS) == (ended is NodeStage.FINISHED)


def test_nodes_that_reported_no_end_or_nothing_are_named(
    trained: tuple[HandFleet, dict[int, int | None]], tmp_path: Path
) -> None:
    folder = tmp_path / "fleet"
    shutil.copytree(trained[0].folder, folder)
    shutil.rmtree(folder / "nodes" / "2")
    record = NodeRecord.read(folder / "nodes" / "1")
    assert record is not None
    record.stage = NodeStage.RUNNING
    record.write(folder / "nodes" / "1")
    told: list[str] = []
    found = collect(folder, out=tmp_path / "run", page=False, note=told.append, deaths={2: "out of memory"})
    assert found.exit_code == ExitCode.FAIL
    reasons = {death["node"]: death["reason"] for death in found.result["died"]}
    assert reasons == {1: "it never reported an end; the last that it wrote is of round 3", 2: "out of memory"}
    assert told == [f"node {node}: {reason}" for node, reason in sorted(reasons.items())]
    assert [event[3] for event in events(found, "left_out")] == [{"nodes": [2]}] * 4


def test_sigterm_ends_a_node_in_good_order(fleets: list[HandFleet], tmp_path: Path) -> None:
    endless = CONSENSUS.replace("rounds: 8", "rounds: 100000")
    fleets.append(fleet := HandFleet(tmp_path / "fleet", endless, 3))
    fleet.start(0, 1, 2)
    wait_until_round(fleet, 0, 2)
    for node in fleet.running.values():
        node.terminate()
    assert fleet.end() == {node: ExitCode.INTERRUPTED for node in range(3)}, fleet.logs(range(3))
    found = collect(fleet.folder, out=tmp_path / "run", page=False)
    assert found.exit_code == ExitCode.INTERRUPTED
    assert found.result["died"] == []
    messages = found.result["messages"]
    assert messages["sent"] == sum(messages[name.value] for name in FateClass) > 0
    assert events(found, "start")


def test_ctrl_c_before_the_start_ends_a_node_too(fleets: list[HandFleet], tmp_path: Path) -> None:
    fleets.append(fleet := HandFleet(tmp_path / "fleet", CONSENSUS, 3))
    fleet.start(0)
    until = time.monotonic() + 60
    while NodeRecord.read(fleet.directory(0)) is None and time.monotonic() < until:
        time.sleep(0.05)
    pid = fleet.running[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    assert fleet.end() == {0: ExitCode.INTERRUPTED}


def test_a_server_and_its_clients(fleets: list[HandFleet], tmp_path: Path) -> None:
    server = """
schema: netdfl/1
name: by-hand
nodes: 3
rounds: 3
task: {dataset: digits, model: mlp, batch_size: 32}
algorithm: {name: fedavg, lr: 0.1}
topology: {kind: star}
"""
    fleets.append(fleet := HandFleet(tmp_path / "fleet", server, 4))
    fleet.start(*range(4))
    assert fleet.end() == dict.fromkeys(range(4), 0), fleet.logs(range(4))
    found = collect(fleet.folder, out=tmp_path / "run", page=False)
    assert found.exit_code == ExitCode.PASS, found.result["reasons"]
    simulated = run(loads(server, on="simulated"), out=tmp_path / "simulated", page=False)
    assert found.result["test_accuracy"] == simulated.result["test_accuracy"]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("events: [{at_round: 2, for_rounds: 1, link: '0->1', loss: 1}]", "lost_message"),
        ("links: {'0->1': {state: down_hold}}", "unreachable"),
    ],
)
def test_a_fleet_that_stood_still_for_good_is_diagnosed_and_not_taken_for_interrupted(
    fleets: list[HandFleet], tmp_path: Path, fault: str, cause: str
) -> None:
    scenario = CONSENSUS.replace("500ms", "none") + f"failure_detector: none\n{fault}\n"
    fleets.append(fleet := HandFleet(tmp_path / "fleet", scenario, 3))
    fleet.start(0, 1, 2)
    until = time.monotonic() + 60
    while not all((fleet.directory(node) / ACCOUNTS_FILE).exists() for node in range(3)) and time.monotonic() < until:
        time.sleep(0.1)
    for node in fleet.running.values():
        node.terminate()
    fleet.end()
    found = collect(fleet.folder, out=tmp_path / "run", page=False)
    assert found.exit_code == ExitCode.FAIL
    (stall,) = found.result["stalls"]
    assert (stall["cause"], stall["roots"], stall["culprits"]) == (cause, [1], [0])
    assert not stall["suspected"]
    assert "interrupted" not in " ".join(found.result["reasons"])
