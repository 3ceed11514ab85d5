"""Every order and every report comes out of its bytes as it went in."""

from __future__ import annotations

from typing import get_args

import pytest

from netdfl.core.control import (
    Again,
    AskClock,
    Broke,
    Bye,
    ClockReading,
    CoreFlows,
    CoreRate,
    CoreRates,
    Crashed,
    Evaluate,
    Evaluated,
    FilePart,
    Gone,
    Happened,
    Hello,
    ModelSaved,
    Order,
    Peers,
    Probe,
    ProbeReply,
    Progress,
    Recover,
    Report,
    Returned,
    Start,
    Stop,
)
from netdfl.core.fates import MessageCounts
from netdfl.core.types import Kind
from netdfl.transport.control.codec import decode_order, decode_report, encode

ORDERS = [
    Peers({0: "here:1", 3: "there:2"}),
    Start(-5),
    Gone(2, "it crashed"),
    Returned(2, "here:3", 1),
    Evaluate(4, (0, 1)),
    ClockReading(3, -(10**15)),
    Stop("over", 1.5),
    Probe(7),
    Recover(skip=(1, 2)),
    Recover(again=(Again(1, 2, 3, Kind.REPLY), Again(2, 0, 0, Kind.DATA))),
    CoreRates((), True),
    CoreRates((CoreRate(0, 0), CoreRate(3, 1 << 62, 1 << 61), CoreRate(3, 7, -1))),
]
REPORTS = [
    Hello(node=-1, role="evaluator", pid=4, address="", scenario_hash="h", protocol_version=1, epoch=2),
    Progress(round=3, ended=True, train_loss=0.0, at_ns=5, bytes_sent=2**40, messages=MessageCounts(3, lost=1)),
    Progress(round=3),
    ModelSaved(2),
    AskClock(3),
    FilePart("store/messages-001.jsonl", 5, b"\x00\xff", True),
    FilePart("models/001.safetensors", 0, b"", False, last=True),
    Happened(-1, 0, "failed", {"reason": "no", "nodes": [1, 2], "also": {"x": None}}),
    Broke(1, 2, "the disk is full"),
    Crashed(at_ns=9, round=4, source=0, at_round=0, state="lost", weight=0.0),
    Crashed(at_ns=9, round=4, source=1, at_round=None, state="kept"),
    Evaluated(3, {"test_accuracy": 0.5, "test_loss": float("inf")}),
    ProbeReply(8, {"node": 1, "edges": [[0, 1, 2]]}),
    Bye("done"),
    CoreFlows((CoreRate(0, -1, -(1 << 61)), CoreRate(3, 1 << 62))),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_survives(order: Order) -> None:
    assert decode_order(encode(order)) == order


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_survives(report: Report) -> None:
    assert decode_report(encode(report)) == report


def test_every_kind_is_tried() -> None:
    assert {type(order) for order in ORDERS} == set(get_args(Order))
    assert {type(report) for report in REPORTS} == set(get_args(Report))


@pytest.mark.parametrize("decode", [decode_order, decode_report])
def test_nothing_is_no_order_and_no_report(decode) -> None:
    with pytest.raises(ValueError, match="no kind"):
        decode(b"")
