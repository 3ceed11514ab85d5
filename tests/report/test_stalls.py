"""The report's section on stalls, and its drawings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.types import Kind, Message, Payload
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.keep import MOST_KEPT, keep_stall, kept_stalls
from netdfl.diagnosis.snapshot import Awaited, AwaitedFate, NodeNow, Snapshot, State, WaitNow
from netdfl.record.run import Run, RunDirectory, open_run
from netdfl.record.store import StoreWriter
from netdfl.report.sections import stalls
from netdfl.report.stall_figures import Arrow, draw_messages, draw_waits, shown_nodes

MS = 10**6


def stalled() -> tuple[Finding, Snapshot]:
    """Node 3 of a ring waits for a lost message of node 2; node 4 waits for node 3."""
    lost = {2: Awaited(AwaitedFate.LOST, "loss", (2, 3))}
    waits = {3: WaitNow(round=5, need=1, awaited=lost, since_ns=80 * MS)}
    waits[4] = WaitNow(round=6, need=1, awaited={3: Awaited()}, since_ns=95 * MS)
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
            store.message(message, 120, round * 15 * MS, arrived, "delivered" if arrived else "dropped:loss")
    finding, snapshot = stalled()
    keep_stall(directory, finding, snapshot)
    directory.write_json("result.json", {"deadlocks": [], "stalls": [finding.to_json()]})
    return open_run(directory.path)


def test_the_section_says_why_and_draws_both_pictures(run: Run) -> None:
    section = stalls(run)
    assert section is not None
    said = "node 3 waits in round 5 for node 2, whose message was lost on 2->3; 4 waits behind it. Since 0.08 s. "
    assert section.lede.startswith(said)
    graph, messages = section.figures
    for node in ("node 2", "node 3", "node 4", "did not arrive", "root waits"):
        assert node in messages.svg
    for word in ("root", "waited for", "waits behind"):
        assert word in graph.svg
    assert section.tables[0].rows[0][:4] == ["lost message", "for good", "5", "0.080 s"]


def test_no_stall_no_section(run: Run) -> None:
    RunDirectory(run.path).write_json("result.json", {"deadlocks": [], "stalls": []})
    assert stalls(open_run(run.path)) is None


def test_large_and_small_findings_are_drawn() -> None:
    finding = stalled()[0]
    large = replace(finding, behind=tuple(range(4, 400))).to_json()
    assert len(shown_nodes(large, 40)) == 40
    assert draw_waits(large, [(n, n - 1) for n in range(4, 400)]).startswith("<svg")
    assert draw_messages(finding.to_json(), []).startswith("<svg")
    alone = replace(finding, roots=(3,), culprits=(3,), behind=(), witness=()).to_json()
    assert draw_waits(alone, []).startswith("<svg")
    assert draw_messages(alone, [Arrow(3, 2, 1, 0.1, 0.2, "delivered")]).startswith("<svg")


def test_each_bar_begins_when_its_own_node_began_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = replace(stalled()[0], roots=(3, 4), behind=()).to_json()
    monkeypatch.setattr("netdfl.report.stall_figures.to_svg", lambda canvas: canvas)
    canvas: Any = draw_messages(finding, [Arrow(2, 3, 5, 0.075, None, "dropped:loss")], {3: 0.02, 4: 0.08})
    bars = canvas.axes[0].collections[1].get_segments()
    assert sorted(float(bar[0][0]) for bar in bars) == [0.02, 0.08]
    assert canvas.axes[0].get_xlim()[0] <= 0.02


def test_the_folder_of_stalls_is_bounded_and_reads_the_permanent_first(tmp_path: Path) -> None:
    finding, snapshot = stalled()
    for _ in range(MOST_KEPT):
        keep_stall(RunDirectory(tmp_path), replace(finding, permanent=False), snapshot)
    assert keep_stall(RunDirectory(tmp_path), finding, snapshot) is None
    assert len(kept_stalls(tmp_path)) == MOST_KEPT
    (tmp_path / "stalls" / "000.json").unlink()
    keep_stall(RunDirectory(tmp_path), finding, snapshot)
    assert kept_stalls(tmp_path)[0]["finding"]["permanent"]
