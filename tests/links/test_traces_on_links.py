"""Links that go by a trace: their queues, what an event may not change of them, and losses from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import DROPPED, Transit
from netdfl.links.rules.loss import Trace
from netdfl.links.rules.mahimahi import Opportunities, TraceRate, mahimahi
from netdfl.links.rules.rate import MessageLimit
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec

S = 10**9


def unit(number: int, kind: Kind = Kind.DATA, *, copy: int = 0) -> Transit:
    return Transit(0, 1, kind, number, 0, 0, 1500, copy=copy)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "trace").write_text("10\n20\n")
    return str(tmp_path / "trace")


def test_a_traces_queue_is_bounded_by_messages_or_bytes_as_is_said(trace: str) -> None:
    at_ns, period_ns = (10**7, 2 * 10**7), 2 * 10**7
    assert mahimahi(file=trace) == Opportunities(at_ns, None, None, period_ns)
    assert mahimahi(file=trace, queue=1500) == Opportunities(at_ns, 1500, None, period_ns)
    assert mahimahi(file=trace, queue=MessageLimit(1)) == Opportunities(at_ns, None, 1, period_ns)
    for queue in (1500, MessageLimit(1)):
        stage = TraceRate(mahimahi(file=trace, queue=queue))
        assert [stage.advance(unit(n), 0) for n in range(3)] == [10**7, 2 * 10**7, DROPPED]


def test_a_trace_is_changed_by_no_event_but_for_a_reset(trace: str) -> None:
    spec = LinksSpec({"0->1": {"rate": {"kind": "mahimahi", "file": trace}}}, {}, 2)

    def links(**entry: object) -> tuple[Links, CompiledEvent]:
        (event,) = compile_events([{"link": "0->1"} | entry], Facts(2, Streams(1), {}, 100 * S, 9))
        return Links(spec, Streams(1), [event]), event

    refused = pytest.raises(ValueError, match="a rate from a trace can't be changed by an event")
    by_rounds, _ = links(at_round=1, rate="8bit")
    with refused:
        by_rounds.path(0, 1)
    by_clock, event = links(at="1s", rate="8bit")
    by_clock.path(0, 1)
    with refused:
        by_clock.apply(event, S)
    other, event = links(at="1s", state="down_reset")
    for number in range(2):  # the first leaves at once
        other.path(0, 1).stages[1].enter(unit(number), S)
    assert [each.unit.round for each in other.apply(event, S)] == [1]
    losing, _ = links(at_round=1, loss=1)
    assert len(losing.path(0, 1).stages) == 1, "events on other keys may be by rounds"


@pytest.mark.parametrize("text", ["0 1 1", "0,1,1", "0\n1\n 1\n"])
def test_a_file_of_losses_is_walked_through_by_data_and_by_the_rest_apart(text: str, tmp_path: Path) -> None:
    (tmp_path / "losses").write_text(text)
    model = Trace(0, file=str(tmp_path / "losses"))
    assert [model.lost(unit(n)) for n in range(4)] == [False, True, True, False]
    assert [model.lost(unit(n, Kind.ACK)) for n in range(2)] == [False, True]
    assert [model.lost(unit(5)), model.lost(unit(5, copy=1)), model.lost(unit(6))] == [True, True, True]
    (tmp_path / "losses").write_text("0 2")
    with pytest.raises(ValueError, match="holds more than 0 and 1"):
        Trace(0, file=str(tmp_path / "losses"))


def test_losses_are_given_once_and_are_0_or_1(tmp_path: Path) -> None:
    for said in ({}, {"losses": [0], "file": "x"}):
        with pytest.raises(ValueError, match="give one of them"):
            Trace(0, **said)  # type: ignore[arg-type]
    for losses in ([], [2], [0, -1]):
        with pytest.raises(ValueError, match="not empty"):
            Trace(0, losses=losses)
