"""What a whole run does once and not many times, as counts."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core.fates import MessageCounts
from netdfl.core.outcome import outcome_of
from netdfl.core.types import Edge, Kind, Message, Multicast, Payload
from netdfl.links import channel
from netdfl.links.schedule.active_changes import OwnRules, own_rules
from netdfl.links.spec import LinksSpec
from netdfl.node.ledger import LAST, LAST_LOST, NodeLedger
from netdfl.record import layout
from netdfl.record.segments import pieces
from netdfl.record.status import EvaluationStatus, FleetStatus, NodeStatus, Phase
from netdfl.supervisor import showing
from netdfl.testing.loopback import SilentRecorder
from netdfl.transport.base import Fate
from netdfl.worlds.simulated.arithmetic import rare_collections
from netdfl.worlds.simulated.loop import VirtualClock, VirtualLoop

SMALL = {
    "schema": "netdfl/1",
    "name": "small",
    "nodes": 4,
    "rounds": 3,
    "topology": {"kind": "ring"},
    "algorithm": {"name": "dpsgd"},
    "task": {"kind": "consensus", "dim": 2},
    "world": {"kind": "simulated"},
}


@contextmanager
def full_collections() -> Iterator[list[int]]:
    """Count the garbage collector's looks through everything."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)


def test_the_record_is_read_once_for_the_verdict_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def counted(store: Path, table: str) -> Any:
        looked.append(table)
        return pieces(store, table)

    monkeypatch.setattr(layout, "pieces", counted)
    netdfl.run(SMALL, out=tmp_path / "bare", page=False)
    assert looked.count("messages") == 1
    netdfl.run(SMALL, out=tmp_path / "paged")
    assert looked.count("messages") == 2


def test_held_tables_are_read_anew_afterwards(tmp_path: Path) -> None:
    run = netdfl.run(SMALL, out=tmp_path / "run", page=False).run
    count = "SELECT count(*) FROM metrics"
    ((before,),) = run.rows(count)
    row = '{"at_s":0.0,"node":0,"round":0,"name":"more","value":1.0}\n'
    with run.held():
        with (run.path / "store" / "metrics-fleet.jsonl").open("a") as file:
            file.write(row)
        assert run.rows(count) == [(before,)]
        with run.held():
            assert run.metrics.count("*").fetchall() == [(before,)]
    assert run.rows(count) == [(before + 1,)]
    assert run.metrics.count("*").fetchall() == [(before + 1,)]


def test_the_heap_is_looked_through_only_where_the_last_fleet_is_not_freed() -> None:
    class Fleet:
        pass

    def lives(fleet: Fleet) -> int:
        with full_collections() as seen, rare_collections(fleet):
            return len(seen)

    first, second, third = Fleet(), Fleet(), Fleet()
    lives(first)
    assert lives(second) == 1
    del second
    assert lives(third) == 0


def test_showing_a_fleet_takes_a_share_of_the_run_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []
    now = [0.0]

    def write(status: FleetStatus) -> str:
        written.append(now[0])
        now[0] += 1.0  # seconds, as in a very large fleet
        return "{}"

    def tick() -> float:
        now[0] += 0.1
        return now[0]

    monkeypatch.setattr(FleetStatus, "to_text", write)
    monkeypatch.setattr(showing.time, "monotonic", tick)
    monkeypatch.setattr(showing, "SHARE", 0.1)
    netdfl.run(SMALL | {"rounds": 80}, out=tmp_path / "run", page=False)
    whole = 4 * 80 * 0.1
    assert 2 <= len(written) <= 2 + 0.1 * whole


def test_the_status_as_text_is_the_status() -> None:
    nodes = {1: NodeStatus(1, 7, "here:1", 3, Phase.RUNNING, float("nan")), 0: NodeStatus(0, round=4)}
    status = FleetStatus("a", "simulated", "dpsgd", 9, nodes, 1.5, EvaluationStatus(2, 0.5), 10)
    status.messages = MessageCounts.total([MessageCounts(3, 2, 1), MessageCounts(2, 2)])
    found = json.loads(status.to_text())
    assert found["nodes"] == [
        {"node": 0, "pid": None, "address": "", "round": 4, "phase": "starting", "loss": None},
        {"node": 1, "pid": 7, "address": "here:1", "round": 3, "phase": "running", "loss": None},
    ]
    assert (found["messages"]["sent"], found["messages"]["delivered"]) == (5, 4)
    assert (found["slowest"], found["rounds_done"], found["evaluation"]["round"]) == (1, 3, 2)
    assert json.loads(FleetStatus("a", "simulated", "dpsgd", 9).to_text())["nodes"] == []


def test_the_sum_of_no_messages_is_none() -> None:
    assert MessageCounts.total([]) == MessageCounts()


def test_links_with_the_same_entries_share_their_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Edge] = []

    def counted(spec: LinksSpec, edge: Edge) -> OwnRules:
        made.append(edge)
        return own_rules(spec, edge)

    monkeypatch.setattr(channel, "own_rules", counted)
    links = {"default": {"latency": "2ms"}, "0->1": {"latency": "9ms"}, "2->3": {"latency": "3ms"}}
    graph = {"kind": "random_sym", "neighbors": 4, "redraw_every": 1}
    netdfl.run(SMALL | {"nodes": 12, "topology": graph, "links": links}, out=tmp_path / "run", page=False)
    assert len(made) <= 3


def test_edges_keep_their_own_last_messages() -> None:
    loop = VirtualLoop()
    ledger = NodeLedger(0, VirtualClock(loop), SilentRecorder())
    loop.close()
    for dst, fate in ((1, Fate.DELIVERED), (2, Fate.read("dropped:loss"))):
        message = Message(0, dst, Kind.DATA, 0, 7, 0, 0, Payload())
        ledger.sent(Multicast.of(message), 10, 1)
        ledger.settled(outcome_of(message, 10, 1, 2, fate), (message.payload,))
    assert [len(ledger.edges[dst].last) for dst in (1, 2)] == [1, 1]
    assert [len(ledger.edges[dst].last_lost) for dst in (1, 2)] == [0, 1]
    assert (ledger.edges[1].last.maxlen, ledger.edges[2].last_lost.maxlen) == (LAST, LAST_LOST)
