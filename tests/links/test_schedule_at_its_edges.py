"""When entries act, at the bounds of what they may say; and what compiled events say of themselves, all of it."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.loss import GilbertElliott
from netdfl.links.rules.rate import Rate, Shape
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.events import STANDING, CompiledEvent, name_nodes, name_place
from netdfl.links.schedule.when import Facts, Span, spans
from netdfl.links.selectors import Block, nearest, parse_edges, parse_nodes

S = 10**9
ENDS, OPEN = Facts(4, Streams(1), {}, 100, 50), Facts(4, Streams(1))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"at": 0}, [Span(0)]),
        ({"from_": 7}, [Span(7)]),
        ({"at": 99}, [Span(99)]),
        ({"at": 0, "for_": 1}, [Span(0, 1)]),
        ({"at": 5, "to": 6}, [Span(5, 6)]),
        ({"at": 5, "to": 200}, [Span(5, 200)]),
        ({"every": 30}, [Span(30), Span(60), Span(90)]),
        ({"at": 0, "every": 50}, [Span(0), Span(50)]),
        ({"at": 0, "every": 33, "count": 4}, [Span(0), Span(33), Span(66), Span(99)]),
        ({"at": 0, "every": 10, "to": 21}, [Span(0), Span(10), Span(20)]),
        ({"at": 0, "every": 10, "to": 20}, [Span(0), Span(10)]),
        ({"at": 0, "every": 10, "for_": 10, "count": 2}, [Span(0, 10), Span(10, 20)]),
        ({"at": 0, "every": 10, "to": 1000, "count": 2}, [Span(0), Span(10)]),
        ({"at": 0, "every": 10, "to": 11, "count": 9}, [Span(0), Span(10)]),
        ({"at_round": 0}, [Span(0, None, True)]),
        ({"at_round": 49, "for_rounds": 1}, [Span(49, 50, True)]),
        ({"at_round": 3, "for_": 7}, [Span(3, None, True, 7)]),
        ({"at_round": 3, "every_rounds": 20, "for_rounds": 2}, [Span(n, n + 2, True) for n in (3, 23, 43)]),
        ({"at_round": 3, "to_round": 9}, [Span(3, 9, True)]),
    ],
)
def test_an_entry_acts_in_the_spans_that_it_says(said: dict[str, int], expected: list[Span]) -> None:
    assert spans(ENDS, **said) == expected


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "does not say when"),
        ({"at": 1, "from_": 1}, "give one of them"),
        ({"at": 100}, "after the end of the run"),
        ({"at": -1}, "not ahead"),
        ({"at": 1, "for_": 0}, "not ahead"),
        ({"at": 1, "every": 0}, "not ahead"),
        ({"at": 5, "to": 5}, "heal before it breaks"),
        ({"at": 5, "to": 9, "for_": 1}, "give one of them"),
        ({"at": 5, "count": 2}, "add every"),
        ({"at": 5, "every": 9, "for_": 10}, "longer than every"),
        ({"at": 0, "every": 50, "count": 3}, "begin 3 times, the last after the end"),
        ({"at_round": 50}, "after the end of the run .50 rounds"),
        ({"at_round": 3, "at": 1}, "at mixes time and rounds"),
        ({"at_round": 3, "from_": 1}, "from mixes time and rounds"),
        ({"at_round": 3, "to": 1}, "to mixes time and rounds"),
        ({"at_round": 3, "every": 1}, "every mixes time and rounds"),
        ({"at": 3, "to_round": 7}, "to_round mixes time and rounds"),
        ({"at": 3, "for_rounds": 7}, "for_rounds mixes time and rounds"),
        ({"at": 3, "every_rounds": 7}, "every_rounds mixes time and rounds"),
    ],
)
def test_what_is_no_span_is_refused(said: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        spans(ENDS, **said)


def test_without_an_end_of_the_run_a_repetition_needs_one_and_has_a_bound() -> None:
    with pytest.raises(ValueError, match="repeat for ever"):
        spans(OPEN, at=0, every=1)
    assert len(spans(OPEN, at=0, every=1, to=100_000)) == 100_000
    with pytest.raises(ValueError, match="more than 100000 times"):
        spans(OPEN, at=0, every=1, to=100_001)
    assert spans(OPEN, at=5, every=10, count=2) == [Span(5), Span(15)]


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (Span(1, 5), Span(5, 9), False),
        (Span(1, 6), Span(5, 9), True),
        (Span(1), Span(5, 9), True),
        (Span(9), Span(5, 9), False),
        (Span(8), Span(5, 9), True),
        (Span(1), Span(2), True),
        (Span(1, 6, True), Span(5, 9), False),
        (Span(1, 6, True), Span(5, 9, True), True),
    ],
)
def test_spans_meet_where_both_hold_at_some_moment(one: Span, other: Span, meet: bool) -> None:
    assert one.overlaps(other) is other.overlaps(one) is meet


# entries that do not fit


def problems(*entries: dict[str, Any]) -> list[str]:
    try:
        compile_events(entries, Facts(4, Streams(7), {"core": [0, 1]}, 100 * S, 50))
    except ScheduleError as error:
        return [f"{index}: {what}" for index, what in error.problems]
    return []


BROKEN = {"at": "1s", "link": "0->1", "state": "down_drop"}


@pytest.mark.parametrize("more", [{"at": "2s", "for": "1s"}, {"at": "2s", "to": "3s"}, {"at_round": 2, "for": "1s"}])
def test_a_heal_is_a_moment(more: dict[str, Any]) -> None:
    assert problems(BROKEN, {"at": "2s", "heal": "0->1"}) == []
    assert "heal is a moment and has no end" in problems(BROKEN, {"heal": "0->1"} | more)[0]


def test_a_heal_is_of_a_link_that_was_broken_whole_or_in_part() -> None:
    broken = {"at": "1s", "link": "0->[1, 2]", "state": "down_drop"}
    for healed, fits in (("0->1", True), ("[0, 3]->2", True), ("*", True), ("3->[1, 2]", False), ("[1, 2]->0", False)):
        assert (problems(broken, {"at": "2s", "heal": healed}) == []) is fits


def still(node: int, rate: str, at: str = "1s", key: str = "uplink") -> dict[str, Any]:
    return {"at": at, "node": node, key: rate}


def test_a_rate_of_zero_at_a_node_needs_a_later_one_at_that_node() -> None:
    assert problems(still(1, "0bit"), still(1, "8bit", "2s")) == []
    assert problems(still(1, "0bit"), {"at": "2s", "node": [0, 1], "uplink": "8bit"}) == []
    wrong = "sets uplink to 0 and nothing ends that"
    for later in (still(2, "8bit", "2s"), still(1, "8bit", "500ms"), still(1, "8bit", "2s", "downlink")):
        assert [wrong in each for each in problems(still(1, "0bit"), later)] == [True]
    assert len(problems({"at": "1s", "node": [0, 1], "uplink": "0bit"}, still(1, "8bit", "2s"))) == 1


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"at_round": 1, "node": 1, "uplink": "8bit"}, "serves messages of many rounds"),
        ({"at": "1s", "partition": [[0], [1], [2]], "one_way": True}, "give two groups"),
        ({"at": "1s", "partition": [[0], []]}, "two groups or more, none empty"),
        ({"at": "1s", "restart": 1, "for": "1s"}, "restart is a moment of time"),
        ({"at_round": 1, "resume": 1}, "resume is a moment of time"),
        ({"at_round": 1, "link": "0->1", "duplicate": 0.5}, "duplicate can't change by rounds"),
        ({"at_round": 1, "link": "0->1", "corrupt": 0.5}, "corrupt can't change by rounds"),
        ({"at_round": 1, "link": "0->1", "reorder": 0.5}, "reorder can't change by rounds"),
        ({"at_round": 1, "link": "0->1", "state": "down_reset"}, "needs a clock"),
        ({"at_round": 1, "link": "0->1", "rate": "x0"}, "would hold their messages for ever"),
        ({"from": "0s", "to": "1s", "churn": 1, "up": "1s"}, "give these or that"),
        ({"from": "0s", "to": "1s", "churn": 1, "up": "0s", "down": "1s"}, "must be above 0"),
    ],
)
def test_what_an_entry_can_not_say_is_refused(entry: dict[str, Any], why: str) -> None:
    assert [why in each for each in problems(entry)] == [True]


# what is told


BOTH = Block(frozenset([0, 1]), frozenset([3]))


def test_an_event_is_plain_data_without_what_says_nothing() -> None:
    slow = CompiledEvent(
        "slow_down", 2, at_round=4, after_ns=7, nodes=(1, 3), parameters={"factor": 2.0}, entry="slow_down"
    )
    assert slow.to_json() == {
        "action": "slow_down",
        "entry": "slow_down",
        "source": 2,
        "at_round": 4,
        "after_ns": 7,
        "nodes": [1, 3],
        "parameters": {"factor": 2.0},
        "where": "node 1,3",
    }
    changes = {"loss": 0.5, "latency": {"scale": 2.0}, "rate": {"kind": "serial", "rate": 8.0}}
    cut = CompiledEvent("set", 0, at_ns=0, until_round=5, cause=0, blocks=(BOTH,), parameters=changes)
    assert cut.to_json() == {
        "action": "set",
        "source": 0,
        "at_ns": 0,
        "until_round": 5,
        "cause": 0,
        "links": [[[0, 1], [3]]],
        "parameters": changes,
        "where": "0..1->3",
        "change": "loss 0.5, latency x2, rate 8bit",
    }
    node = CompiledEvent("unset", 1, at_ns=3, nodes=(2,), entry="node")
    assert node.to_json() == {
        "action": "unset", "entry": "node", "source": 1, "at_ns": 3, "cause": STANDING, "nodes": [2], "where": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "named"), [([4], "4"), ([2, 1], "1..2"), ([0, 2], "0,2"), ([0, 1, 3], "0,1,3"), ([5, 4, 3], "3..5")]
)
def test_nodes_in_a_row_are_named_by_their_ends(nodes: list[int], named: str) -> None:
    assert name_nodes(nodes) == named


def test_places_are_named_by_what_they_part_or_join_and_of_many_the_first_three() -> None:
    there, back = Block(frozenset([0]), frozenset([1])), Block(frozenset([1]), frozenset([0]))
    assert name_place((there, back)) == "0--1"
    assert name_place((there, there)) == "0->1, 0->1"
    assert name_place((there, back), entry="partition") == "0 | 1"
    assert name_place((there,), entry="partition") == "0->1"
    assert name_place((there,) * 3) == "0->1, 0->1, 0->1"
    assert name_place((there,) * 5) == "0->1, 0->1, 0->1 and 2 more"


@pytest.mark.parametrize(
    ("event", "rounds"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"at_round": 2}, [2, 3, 4]),
        ({"at_round": 2, "until_round": 3}, [2]),
        ({"until_round": 2}, [0, 1]),
    ],
)
def test_an_event_by_rounds_holds_from_its_first_to_before_its_end(event: dict[str, int], rounds: list[int]) -> None:
    assert [round for round in range(5) if CompiledEvent("set", 0, **event).holds_in(round)] == rounds


def test_at_one_moment_what_ends_comes_before_what_begins_and_rounds_come_last() -> None:
    def at(action: str, source: int = 0, **more: Any) -> CompiledEvent:
        return CompiledEvent(action, source, **more)

    ordered = [
        at("crash", at_ns=3),
        at("unset", 7, at_ns=4),
        at("restart", 8, at_ns=4),
        at("slow_down", 9, at_ns=4, parameters={"factor": 1}),
        at("set", 1, at_ns=4),
        at("slow_down", 2, at_ns=4, parameters={"factor": 2}),
        at("set", 5, at_ns=4),
        at("crash", 9, at_round=0),
        at("restart", 0, at_round=0, after_ns=5),
        at("crash", 0, at_round=1),
    ]
    assert sorted(reversed(ordered), key=lambda event: event.order) == ordered


# selectors


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("default", 0),
        ("*", 0),
        ("all", 0),
        ("core->2", 2),
        ("0..1->[2, 3]", 1),
        ("0->1", 3),
        ("0--1", 3),
        ("core--core", 1),
    ],
)
def test_a_selector_ranks_by_its_single_nodes(text: str, rank: int) -> None:
    assert parse_edges(text, {"core": [0, 1]}, 4).rank == rank


def test_nodes_are_named_by_numbers_ranges_groups_and_lists() -> None:
    groups = {"core": [0, 2]}
    for written in ("0..3", "*", "all", [0, "1..3"], "[0, 1,2..3 ]", "core,1,3"):
        assert parse_nodes(written, groups, 4) == {0, 1, 2, 3}
    assert parse_nodes(" 2 .. 2 ", groups, 4) == parse_nodes(2, groups, 4) == {2}
    assert parse_nodes([], groups, 4) == parse_nodes("[]", groups, 4) == set()
    with pytest.raises(ValueError, match=r"there is no node 4 \(in '3..4'\); nodes are 0 to 3"):
        parse_nodes("3..4", groups, 4)
    assert nearest("coer", ["core", "edge"]) == "did you mean core?"
    assert nearest("x", ["b", "a"]) == "choose one of a, b"
    assert nearest("x", []) == "choose one of (none is defined)"


def test_a_block_is_of_its_links_in_order_and_of_no_node_with_itself() -> None:
    block = Block(frozenset([2, 0]), frozenset([1, 0]))
    assert list(block.edges()) == [(0, 1), (2, 0), (2, 1)]
    assert [edge in block for edge in ((0, 0), (0, 1), (1, 0), (2, 1))] == [False, True, False, True]
    assert list(parse_edges("0--[1, 2]", {}, 4)) == [(0, 1), (0, 2), (1, 0), (2, 0)]


# rules before the common start


def test_times_before_the_common_start_are_times_like_others() -> None:
    unit = Transit(0, 1, Kind.DATA, 0, 0, 0, 100)
    assert Latency(0, constant(delay=5)).advance(unit, -1000) == -995
    assert Rate(Shape(8e9)).advance(unit, -1000) == -900


@pytest.mark.parametrize(("p", "r"), [(0.2, 0.5), (0.5, 0.5), (0.0, 1.0)])
@pytest.mark.parametrize(("loss", "burst"), [(0.0, 0.0), (1.0, float("inf"))])
def test_where_none_or_all_is_lost_a_burst_is_0_or_without_end(p: float, r: float, loss: float, burst: float) -> None:
    model = GilbertElliott(0, p=p, r=r, loss_good=loss, loss_bad=loss)
    assert (model.stationary_loss, model.mean_burst) == (loss, burst)
