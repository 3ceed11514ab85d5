"""Contact plans, traces and absences from files, whole: what each row comes to within each span."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.events import STANDING, CompiledEvent
from netdfl.links.schedule.when import Facts

S = 10**9
Told = list[tuple[str, float]]


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    """Compile one entry with a file of these lines, for four nodes and 100 s."""

    def compile_(lines: str, entry: dict[str, Any], end_ns: int | None = 100 * S) -> list[CompiledEvent]:
        (tmp_path / "file").write_text(lines.replace(" ", "\n"))
        return compile_events([entry | {"file": str(tmp_path / "file")}], Facts(4, Streams(1), {}, end_ns))

    return compile_


def of(events: list[CompiledEvent], edge: tuple[int, int]) -> Told:
    return [(e.action, (e.at_ns or 0) / S) for e in events if any(edge in block for block in e.blocks)]


HEAD = "start_s,end_s,src,dst "


@pytest.mark.parametrize(
    ("rows", "when", "expected"),
    [
        ("0,5,0,3", {"at": "0s"}, [("set", 5)]),
        ("2,5,0,3", {"at": "0s"}, [("set", 0), ("unset", 2), ("set", 5)]),
        ("2,5,0,3", {"at": "10s"}, [("set", 10), ("unset", 12), ("set", 15)]),
        ("2,5,0,3", {"from": "10s", "to": "30s"}, [("set", 10), ("unset", 12), ("set", 15), ("unset", 30)]),
        ("2,5,0,3", {"from": "10s", "to": "15s"}, [("set", 10), ("unset", 12)]),
        ("2,5,0,3", {"from": "10s", "to": "14s"}, [("set", 10), ("unset", 12)]),
        ("2,5,0,3", {"from": "10s", "to": "11s"}, [("set", 10), ("unset", 11)]),
        ("2,5,0,3 5,7,0,3", {"at": "0s"}, [("set", 0), ("unset", 2), ("set", 7)]),
        ("4,7,0,3 2,5,0,3 3,4,3,0", {"at": "0s"}, [("set", 0), ("unset", 2), ("set", 7)]),
        ("2,9,0,3 3,4,0,3", {"at": "0s"}, [("set", 0), ("unset", 2), ("set", 9)]),
    ],
)
def test_a_link_is_down_but_for_its_contacts(compiled: Any, rows: str, when: dict[str, str], expected: Told) -> None:
    events = compiled(HEAD + rows, when | {"contact_plan": "*"})
    assert of(events, (0, 3)) == of(events, (3, 0)) == expected
    end = [] if "to" not in when else [("unset", float(when["to"][:-1]))]
    assert of(events, (1, 2)) == [("set", float(str(when.get("at", when.get("from")))[:-1])), *end]
    assert {e.parameters.get("state") for e in events} <= {"down_drop", None}


def test_directed_contacts_are_one_way_and_links_without_any_are_down_for_good(compiled: Any) -> None:
    entry = {"at": "0s", "contact_plan": "0--1", "directed": True, "mode": "down_hold"}
    events = compiled(f"{HEAD}0,5,0,1", entry)
    assert (of(events, (0, 1)), of(events, (1, 0)), of(events, (0, 2))) == ([("set", 5)], [("set", 0)], [])
    assert [(e.parameters, e.cause) for e in events] == [({"state": "down_hold"}, STANDING)] * 2


def test_links_with_the_same_gaps_are_down_by_one_event(compiled: Any) -> None:
    events = compiled(
        f"{HEAD}1,2,0,1 1,2,0,2 1,2,3,1", {"from": "0s", "to": "9s", "contact_plan": "*", "directed": True}
    )
    first = [event for event in events if event.at_ns == S]
    ((blocks,),) = [[event.blocks for event in first]]
    assert [(sorted(block.src), sorted(block.dst)) for block in blocks] == [([0], [1, 2]), ([3], [1])]


def refused(compiled: Any, lines: str, entry: dict[str, Any]) -> str:
    with pytest.raises(ScheduleError) as caught:
        compiled(lines, entry)
    return str(caught.value)


@pytest.mark.parametrize("row", ["5,5,0,1", "6,5,0,1", "1,5,2,2", "1,5,0,4", "1,5,-1,1", "1,5,4,0"])
def test_a_contact_has_a_length_and_two_nodes(compiled: Any, row: str) -> None:
    said = refused(compiled, f"{HEAD}1,2,0,1 {row}", {"at": "0s", "contact_plan": "*"})
    assert ":3: expected 0 <= start < end and two nodes of 0 to 3" in said


def test_spaces_behind_commas_are_no_part_of_a_contact(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("start_s, end_s, src, dst\n2, 5, 0, 3\n")
    entry = {"at": "0s", "contact_plan": "*", "file": str(tmp_path / "file")}
    events = compile_events([entry], Facts(4, Streams(1), {}, 100 * S))
    assert of(events, (0, 3)) == [("set", 0), ("unset", 2), ("set", 5)]


def test_contacts_lie_within_the_links_that_are_named_and_in_time(compiled: Any) -> None:
    rows = f"{HEAD}1,2,0,1"
    assert "has contacts of 0->1, which is not in 2--3" in refused(compiled, rows, {"at": "0s", "contact_plan": "2--3"})
    assert "can't go by rounds" in refused(compiled, rows, {"at_round": 1, "contact_plan": "*"})
    assert "columns start_s, end_s, src, dst" in refused(
        compiled, "start_s,end_s,src 1,2,0", {"at": "0s", "contact_plan": "*"}
    )


# traces


def test_a_traces_rate_is_its_mean_in_each_interval_and_repeats(compiled: Any) -> None:
    """Moments at 50, 100 and 250 ms; a period of 250 ms has three intervals of 100 ms, the last in part."""
    events = compiled("50 100 250", {"from": "1s", "to": "1600ms", "trace": "0->1", "interval": "100ms"})
    rates = [(e.at_ns // 10**6, e.parameters["rate"]["rate"]) for e in events if e.action == "set"]
    one = 1500 * 8 / 0.1
    assert rates == [(1000, one), (1100, one), (1200, one), (1300, one), (1400, one), (1500, one)]
    assert [(e.action, e.at_ns // 10**6, e.cause, e.source) for e in events[-1:]] == [("unset", 1600, 0, 0)]
    rates = [
        e.parameters["rate"]["rate"]
        for e in compiled("99 100 199 199 300", {"from": "0s", "to": "600ms", "trace": "0->1"})[:-1]
    ]
    assert rates == [one, 3 * one, one] * 2
    assert len(compiled("50", {"at": "0s", "trace": "0->1", "interval": "30s"})) == 5


def test_a_trace_whose_moments_are_all_zero_has_no_rate(compiled: Any) -> None:
    assert "is empty; expected at least one line" in refused(compiled, "0 0", {"at": "0s", "trace": "0->1"})


# absences

AWAY = "node,leave_s,join_s "


@pytest.mark.parametrize(
    ("rows", "when", "expected"),
    [
        ("0,0,2", {"at": "0s"}, [("crash", 0), ("restart", 2)]),
        ("3,1,", {"at": "0s"}, [("crash", 1)]),
        ("0,1,2 0,3,4", {"at": "10s"}, [("crash", 11), ("restart", 12), ("crash", 13), ("restart", 14)]),
        ("0,3,4 0,1,2", {"at": "0s"}, [("crash", 1), ("restart", 2), ("crash", 3), ("restart", 4)]),
        ("0,1,9", {"from": "10s", "to": "12s"}, [("crash", 11), ("restart", 12)]),
        ("0,1,", {"from": "10s", "to": "12s"}, [("crash", 11), ("restart", 12)]),
        ("0,1,2", {"from": "10s", "to": "14s"}, [("crash", 11), ("restart", 12)]),
        ("0,2,9", {"from": "10s", "to": "12s"}, []),
        ("0,1,2", {"from": "10s", "to": "12s"}, [("crash", 11), ("restart", 12)]),
        ("0,99,200 3,100,200", {"at": "0s"}, [("crash", 99), ("restart", 200)]),
        ("1,1,2", {"at": "0s"}, []),
    ],
)
def test_who_is_away_leaves_and_joins_as_the_file_says(
    compiled: Any, rows: str, when: dict[str, str], expected: Told
) -> None:
    events = compiled(AWAY + rows, when | {"churn": [0, 3]})
    assert [(e.action, (e.at_ns or 0) / S) for e in events] == expected


def test_without_an_end_of_the_run_every_absence_counts(compiled: Any) -> None:
    assert len(compiled(f"{AWAY}0,99,200 0,300,400", {"at": "0s", "churn": 0}, end_ns=None)) == 4


@pytest.mark.parametrize("rows", ["4,1,2", "-1,1,2", "0,2,2", "0,3,2"])
def test_an_absence_is_of_a_node_and_has_a_length(compiled: Any, rows: str) -> None:
    said = refused(compiled, AWAY + rows, {"at": "0s", "churn": "*"})
    assert ":2: expected a node of 0 to 3 and 0 <= leave < join" in said


@pytest.mark.parametrize("rows", ["0,1,3 0,2,5", "0,1, 0,5,6", "0,1,3 0,3,5"])
def test_nobody_leaves_who_is_away(compiled: Any, rows: str) -> None:
    assert "is away then already" in refused(compiled, AWAY + rows, {"at": "0s", "churn": "*"})


# rates that a scenario writes in full


def test_a_rate_of_zero_is_one_however_it_is_written(compiled: Any) -> None:
    for rate, stops in (({"kind": "serial", "rate": "0bit"}, True), ({"kind": "serial", "rate": "8bit"}, False)):
        for when, said in (({"at": "1s"}, "nothing ends that"), ({"at_round": 1}, "hold their messages for ever")):
            try:
                compile_events([when | {"link": "0->1", "rate": rate}], Facts(4, Streams(1), {}, 100 * S, 9))
                told = ""
            except ScheduleError as error:
                told = str(error)
            assert (said in told) is stops


def test_by_rounds_a_rate_is_a_plain_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("5\n")
    trace = {"kind": "mahimahi", "file": str(tmp_path / "file")}
    for rate, plain in (
        (trace, False),
        (None, False),
        ({"kind": "serial", "rate": "8bit"}, True),
        ("8bit", True),
        ("x2", True),
    ):
        entry = {"at_round": 1, "link": "0->1", "rate": rate}
        facts = Facts(4, Streams(1), {}, 100 * S, 9)
        if plain:
            assert len(compile_events([entry], facts)) == 1
        else:
            with pytest.raises(ScheduleError, match="a rate by rounds is a plain one"):
                compile_events([entry], facts)


@pytest.mark.parametrize("more", [{"up": "1s"}, {"down": "1s"}, {"up": "1s", "down": "1s"}])
def test_churn_goes_by_chance_or_by_a_file(compiled: Any, more: dict[str, str]) -> None:
    assert "give these or that" in refused(compiled, f"{AWAY}0,1,2", {"at": "0s", "churn": 0} | more)
