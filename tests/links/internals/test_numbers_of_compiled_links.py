"""How much a trace or a schedule may ask of a run, and the numbers that rates go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.links.rules import mahimahi, rate, tcp
from netdfl.links.schedule import compile as compile_
from netdfl.links.schedule import when
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts


def test_rates_are_of_bits_and_nanoseconds_and_a_run_keeps_so_many_packets_and_events() -> None:
    assert rate._NS_BITS == tcp._NS_BITS == 8 * 10**9
    assert (mahimahi._MOST, compile_._MOST, when._MOST) == (10_000_000, 500_000, 100_000)


def test_a_trace_of_rates_carries_no_more_packets_than_a_run_can_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mahimahi, "_MOST", 10)
    (tmp_path / "fits").write_text("0 1\n1 0.12\n")
    (tmp_path / "more").write_text("0 1\n1 0.1201\n")
    assert len(mahimahi.read_trace(str(tmp_path / "fits"))[0]) == 10
    with pytest.raises(ValueError, match="carries more than 10 packets"):
        mahimahi.read_trace(str(tmp_path / "more"))


S = 10**9
GROUPS = {"core": [0, 1], "edge": [2, 3, 4, 5]}


def facts(end_ns=100 * S, rounds=50) -> Facts:
    return Facts(6, Streams(7), GROUPS, end_ns, rounds)


def compiled(*entries, **kwargs) -> list[CompiledEvent]:
    return compile_events(entries, facts(**kwargs))


@pytest.mark.parametrize("action", [{"flap": "0->1"}, {"random": "0->1"}, {"churn": 1}])
def test_repetition_without_measure_is_refused(action, monkeypatch):
    monkeypatch.setattr("netdfl.links.schedule.compile._MOST", 50)
    compiled({"from": "0s", "to": "20s", "up": "1s", "down": "1s", **action})
    with pytest.raises(ScheduleError, match="makes more than 50 events here; let it last less long"):
        compiled({"from": "0s", "to": "800000h", "up": "1s", "down": "1s", **action})


def problems(*entries: dict[str, Any]) -> list[str]:
    try:
        compile_events(entries, Facts(4, Streams(7), {"core": [0, 1]}, 100 * S, 50))
    except ScheduleError as error:
        return [f"{index}: {what}" for index, what in error.problems]
    return []


def test_an_entry_makes_no_more_events_than_a_run_can_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_, "_MOST", 4)
    flap = {"from": "0s", "flap": "0->1", "up": "1s", "down": "1s"}
    assert problems(flap | {"to": "4s"}) == []
    assert ["more than 4 events" in each for each in problems(flap | {"to": "5s"})] == [True]
