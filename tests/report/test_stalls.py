"""The report's section on stalls, and its drawings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netdfl.core.clock import NS_PER_S
from netdfl.core.fates import LOSS, Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.finding import Finding, keep_stall
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, NodeNow, Snapshot, State, WaitNow
from netdfl.record.base import WaitEnd, WaitRecord
from netdfl.record.directory import RunDirectory
from netdfl.record.kept_stalls import MOST_KEPT, kept_stalls
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter
from netdfl.report.data.sections import stalls
from netdfl.report.data.stalled import MOST_NODES
from netdfl.report.data.stalled import stalls as stalls_data
from tests.record.outcomes import outcome_of

MS = 10**6


def stalled() -> tuple[Finding, Snapshot]:
    """Node 3 of a ring waits for a lost message of node 2; node 4 waits for node 3."""
    lost = {2: AwaitedMessage(AwaitedFate.LOST, "loss", (2, 3))}
    waits = {3: WaitNow(round=5, need=1, awaited=lost, since_ns=80 * MS)}
    waits[4] = WaitNow(round=6, need=1, awaited={3: AwaitedMessage()}, since_ns=95 * MS)
    nodes = {n: NodeNow(node=n, state=State.WAITING, round=w.round, wait=w) for n, w in waits.items()}
    nodes[2] = NodeNow(node=2, state=State.RUNNING, round=6)
    snapshot = Snapshot(at_ns=150 * MS, nodes=nodes)
    return find_stuck(snapshot)[0], snapshot


@pytest.fixture
def run(tmp_path: Path) -> Run:
    directory = RunDirectory.create(tmp_path, "stalled", 0, out=tmp_path / "run")
    directory.write("scenario.yaml", "name: stalled\n")
    with StoreWriter(directory.path, "002") as store:
        for round, arrived in ((4, 70 * MS), (5, None), (6, 100 * MS)):
            message = Message(2, 3, Kind.DATA, 0, round, 0, 0, Payload())
            store.outcome(
                outcome_of(message, 120, round * 15 * MS, arrived, Fate.DELIVERED if arrived else Fate.dropped(LOSS))
            )
    finding, snapshot = stalled()
    keep_stall(directory, finding, snapshot)
    directory.write_json("result.json", {"deadlocks": [], "stalls": [finding.to_json()]})
    return open_run(directory.path)


def test_the_section_says_why_and_the_data_have_the_graph(run: Run) -> None:
    section = stalls(run)
    assert section is not None
    said = "node 3 waits in round 5 for node 2, whose message was lost on 2->3; 4 waits behind it. Since 0.08 s. "
    assert (section.lede, section.tables[0].folded) == ("", False)
    assert section.tables[0].rows[0][-1].startswith(said)
    assert section.tables[0].rows[0][:4] == ["lost message", "for good", "5", "0.080 s"]
    (drawn,) = stalls_data(run)
    assert drawn["text"].startswith(said)
    assert (drawn["nodes"], drawn["roots"], drawn["culprits"]) == ([3, 2, 4], [3], [2])
    assert (drawn["waits"], drawn["witness"]) == ([[3, 2], [4, 3]], [[3, 2]])
    assert drawn["permanent"]


def test_of_many_stalls_the_first_is_told_and_the_others_are_folded(run: Run) -> None:
    found = {"deadlocks": [], "stalls": [replace(stalled()[0], round=round).to_json() for round in range(4)]}
    RunDirectory(run.path).write_json("result.json", found)
    section = stalls(open_run(run.path))
    assert section is not None
    assert section.lede.startswith("node 3 waits in round 5 for node 2")
    (table,) = section.tables
    assert (table.folded, table.caption, len(table.rows)) == (True, "All 4 stalls", 4)


def test_a_stall_that_is_over_says_when_its_roots_went_on(run: Run) -> None:
    finding, _ = stalled()
    over = replace(finding, permanent=False, over=True, until_ns=600 * NS_PER_S, remedies=())
    RunDirectory(run.path).write_json("result.json", {"deadlocks": [], "stalls": [over.to_json()]})
    with StoreWriter(run.path, "003") as store:
        for since, until in ((10, 20), (80, 390), (400, 900)):
            store.wait(WaitRecord(3, 5, 0, Kind.DATA, since * MS, until * MS, None, WaitEnd.CAME, 2, ()))
    (drawn,) = stalls_data(open_run(run.path))
    assert (drawn["over"], drawn["until_s"]) == (True, 0.39)
    assert drawn["text"].endswith("It is over.")


def test_no_stall_no_section(run: Run) -> None:
    RunDirectory(run.path).write_json("result.json", {"deadlocks": [], "stalls": []})
    assert stalls(open_run(run.path)) is None


def test_of_a_large_finding_the_roots_are_drawn_first(run: Run) -> None:
    finding, snapshot = stalled()
    keep_stall(RunDirectory(run.path), replace(finding, behind=tuple(range(4, 900))), snapshot)
    drawn = stalls_data(run)[1]
    assert (len(drawn["nodes"]), drawn["num_nodes"], drawn["nodes"][0]) == (MOST_NODES, 898, 3)


def test_of_a_large_fleet_a_stall_keeps_those_that_it_is_about(tmp_path: Path) -> None:
    finding, small = stalled()
    others = {node: NodeNow(node=node, state=State.RUNNING, round=6) for node in range(5, 2000)}
    keep_stall(RunDirectory(tmp_path), finding, replace(small, nodes=small.nodes | others))
    (kept,) = kept_stalls(tmp_path)
    assert sorted(node["node"] for node in kept["nodes"]) == [2, 3, 4]


def test_each_wait_begins_when_its_own_node_began_to_wait(run: Run) -> None:
    assert stalls_data(run)[0]["since"] == {"3": 0.08, "4": 0.095}


def test_the_folder_of_stalls_is_bounded_and_reads_the_permanent_first(tmp_path: Path) -> None:
    finding, snapshot = stalled()
    for _ in range(MOST_KEPT):
        keep_stall(RunDirectory(tmp_path), replace(finding, permanent=False), snapshot)
    assert keep_stall(RunDirectory(tmp_path), finding, snapshot) is None
    assert len(kept_stalls(tmp_path)) == MOST_KEPT
    (tmp_path / "stalls" / "000.json").unlink()
    keep_stall(RunDirectory(tmp_path), finding, snapshot)
    assert kept_stalls(tmp_path)[0]["finding"]["permanent"]
