"""Events on core links: cuts in each mode, changes, losses, and routes found anew, against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.when import Facts
from netdfl.underlay.rerouting import rerouted
from tests.underlay.sites import MB, MS, SITES, S, arrivals, fleet

EIGHT = {node: SITES[node // 2] for node in range(8)}
CUT: dict[str, Any] = {"at": "100ms", "for": "500ms", "cut": "zurich--milan"}


def found(messages: list[tuple[float, int, int, int]], *events: dict[str, Any], reroute_s: float | None = None) -> Any:
    """Arrivals in seconds without the delays of the core and rounded to 1 us, or the reasons of losses."""
    underlay = fleet(EIGHT, None if reroute_s is None else round(reroute_s * S))
    ends = arrivals(underlay, messages, {}, events)
    return {n: end if isinstance(end, str) else round(end / S, 6) for n, end in ends.items()}


def test_a_cut_drops_what_enters_either_way_and_lets_pass_what_is_under_way() -> None:
    # both ways between Paris and Milan over zurich--milan at 8 Mbit/s, 5 ms; Zurich itself is reached
    sent = [(0.05, 0, 4, MB), (0.2, 0, 5, MB), (0.2, 5, 0, MB), (0.2, 0, 2, 1000), (0.6, 1, 5, 1000)]
    ends = found(sent, CUT)
    assert ends[1] == ends[2] == "down"
    assert ends[0] == round(0.05 + 1 + 0.001 + 0.005, 6)  # 1000 bytes of another flow pass beside it, for 2 ms
    assert ends[3] == 0.203667  # of paris->zurich 12 Mbit/s are left
    assert 0.6 < ends[4] < 0.61


def test_one_direction_of_a_core_link_is_cut_by_itself() -> None:
    ends = found([(0.2, 0, 4, MB), (0.2, 4, 0, MB)], CUT | {"cut": "zurich->milan"})
    assert ends == {0: "down", 1: 1.205}


def test_a_cut_that_holds_keeps_the_rest_and_one_that_resets_drops_it() -> None:
    sent = [(0, 0, 4, MB), (0.2, 2, 5, MB)]
    held = found(sent, CUT | {"mode": "down_hold"})
    # 0.8 of 8 Mbit are left at 0.6 s, when the second message begins beside the first: 4 Mbit/s each, then 8
    assert held == {0: round(0.6 + 1.8 + 0.005, 6), 1: round(0.6 + 1.9 + 0.002, 6)}
    assert found(sent, CUT | {"mode": "down_reset"}) == {0: "reset", 1: "down"}


def test_a_cut_goes_by_rounds_as_a_partition_does() -> None:
    # the messages of `arrivals` are of rounds 0, 1, 2, ...
    ends = found([(0, 0, 4, 8)] * 4, {"at_round": 1, "for_rounds": 2, "cut": "zurich--milan"})
    assert [ends[n] == "down" for n in range(4)] == [False, True, True, False]


def test_a_core_link_takes_another_rate_for_all_that_cross_it() -> None:
    change = {"at": "500ms", "for": "1s", "core": "zurich->milan", "rate": "x0.25"}
    # 4 Mbit until 0.5 s, 2 Mbit until 1.5 s, and the last 2 Mbit at 8 Mbit/s
    assert found([(0, 0, 4, MB)], change) == {0: round(1.5 + 0.25 + 0.005, 6)}
    assert found([(0, 4, 0, MB)], change) == {0: 1.005}
    assert found([(0, 0, 4, MB)], change | {"rate": "16Mbit", "for": "10s"}) == {0: round(0.5 + 0.25 + 0.005, 6)}


def test_a_core_link_takes_another_delay_for_what_passes_it_later() -> None:
    change = {"at": "1s", "for": "1s", "core": "zurich--milan", "latency": "50ms"}
    sent = [(at, 0, 4, 1) for at in (0.5, 1.5, 2.5)]
    assert found(sent, change) == {0: 0.505001, 1: 1.553001, 2: 2.505001}
    assert found(sent, change | {"latency": "x3"}) == {0: 0.505001, 1: 1.509001, 2: 2.505001}
    own = {"at": "1s", "link": "0->4", "latency": "7ms"}
    assert found(sent, own) == {0: 0.505001, 1: 1.512001, 2: 2.512001}


def test_a_core_link_loses_its_share_of_what_crosses_it() -> None:
    sent = [(0.01 * n, n % 2, 4, 100) for n in range(400)] + [(0.01 * n, 0, 2, 100) for n in range(100)]
    ends = found(sent, {"at": "0s", "core": "zurich->milan", "loss": "25%"})
    lost = {n for n, end in ends.items() if end == "loss"}
    assert 70 <= len(lost) <= 130
    assert lost <= set(range(400))
    assert found(sent[:9], {"at": "0s", "core": "zurich->milan", "loss": 1}) == dict.fromkeys(range(9), "loss")
    assert "loss" not in found(sent[:400], {"at": "0s", "core": "milan->zurich", "loss": 1}).values()
    ended = {"at": "0s", "for": "1s", "core": "zurich->milan", "loss": 1}
    assert [end == "loss" for end in found(sent[:200], ended).values()].count(True) == 100


def test_a_lost_message_takes_its_bytes_of_the_uplink_and_nothing_of_the_core() -> None:
    events = [{"at": "0s", "core": "paris->zurich", "loss": 1}]
    rules = {"default": {"uplink": "8Mbit"}}
    ends = arrivals(fleet(EIGHT), [(0, 0, 2, MB), (0, 3, 5, MB), (0, 0, 1, MB)], rules, events)
    assert ends == {0: "loss", 1: 1 * S + 2 * MS, 2: 2 * S}


# routes that are found anew

HOLD = {"at": "1s", "for": "2s", "cut": "zurich->milan", "mode": "down_hold"}


def test_what_is_held_goes_on_over_the_new_way() -> None:
    # 0.8 Mbit pass until 1 s; the other 7.2 leave at 1.5 s over paris->milan, 10 Mbit/s and 9 ms
    assert found([(0.9, 0, 4, MB)], HOLD, reroute_s=0.5) == {0: round(1.5 + 0.72 + 0.009, 6)}
    assert found([(0.9, 0, 4, MB)], HOLD) == {0: round(3 + 0.9 + 0.005, 6)}


def test_what_is_sent_before_routes_are_found_is_dropped_and_later_messages_pass() -> None:
    sent = [(at, 0, 4, 1) for at in (0.5, 1.2, 1.6, 3.2, 3.6)] + [(1.2, 4, 0, 1)]
    ends = found(sent, HOLD | {"mode": "down_drop"}, reroute_s=0.5)
    assert ends == {0: 0.505001, 1: "down", 2: 1.609001, 3: 3.209001, 4: 3.605001, 5: 1.205001}


def test_what_is_under_way_when_the_old_way_returns_goes_on_over_it() -> None:
    # from 3.2 s at 10 Mbit/s; at 3.5 s the other 5 Mbit go to zurich->milan, 8 Mbit/s and 5 ms
    assert found([(3.2, 0, 4, MB)], HOLD, reroute_s=0.5) == {0: round(3.5 + 0.625 + 0.005, 6)}


def test_where_no_way_is_left_messages_wait_for_the_old_one() -> None:
    cut = HOLD | {"cut": "milan->vienna"}
    assert found([(1.2, 0, 6, 1), (1.2, 6, 0, 1)], cut, reroute_s=0.5) == {0: 3.009001, 1: 1.209002}


def test_a_second_cut_takes_the_new_way_down_too() -> None:
    second = {"at": "2s", "for": "500ms", "cut": "paris--milan", "mode": "down_hold"}
    sent = [(at, 0, 4, 1) for at in (1.8, 2.1)]
    # at 2.5 s paris--milan is back, and zurich->milan is not: routes stay on paris->milan
    assert found(sent, HOLD, second, reroute_s=0.5) == {0: 1.809001, 1: 2.509001}


def test_routes_change_by_events_that_stand_in_the_schedule() -> None:
    underlay = fleet(EIGHT, S // 2)
    facts = Facts(8, Streams(0), core=underlay)
    events = rerouted(compile_events([HOLD, {"at": "9s", "crash": 3}], facts), underlay)
    shown = [(event.at_ns, event.entry, event.action, event.where, dict(event.parameters)) for event in events]
    assert shown == [
        (1 * S, "cut", "set", "zurich->milan", {"state": "down_hold"}),
        (3 * S // 2, "cut", "unset", "zurich->milan", {}),
        (3 * S // 2, "reroute", "set", "zurich->milan", {"without": ["zurich->milan"]}),
        (7 * S // 2, "reroute", "set", "zurich->milan", {"without": []}),
        (9 * S, "crash", "crash", "node 3", {"state": "kept"}),
    ]
    cut = [(sorted(block.src), sorted(block.dst)) for block in events[0].blocks]
    assert cut == [([0, 1], [4, 5, 6, 7]), ([2, 3], [4, 5, 6, 7])]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {"at": "1s", "cut": "paris--oslo"},
            "there is no core link 'paris--oslo'; choose one of milan--paris, milan--",
        ),
        ({"at": "1s", "cut": "paris"}, "'paris' names no core link; write paris--zurich"),
        ({"at": "1s", "core": "paris--zurich"}, "it changes nothing; add one of loss, latency, rate"),
        ({"at": "1s", "core": "paris--zurich", "rate": "0bit"}, "a rate of 0 holds all messages; use cut with mode"),
        ({"at": "1s", "core": "paris--zurich", "rate": "x0"}, "a rate of 0 holds all messages"),
        (
            {"at": "1s", "core": "paris--zurich", "latency": {"dist": "exponential", "mean": "5ms"}},
            "the latency of a core link is a plain time",
        ),
        ({"at": "1s", "core": "paris--zurich", "loss": "x2"}, "loss: x2 is relative"),
        ({"at_round": 1, "core": "paris--zurich", "rate": "1Mbit"}, "carries messages of many rounds; use at: 20s"),
        ({"at_round": 1, "cut": "paris--zurich", "mode": "down_hold"}, "down_hold needs a clock"),
    ],
)
def test_an_event_that_can_t_be_is_refused(event: dict[str, Any], said: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        compile_events([event], Facts(8, Streams(0), core=fleet(EIGHT)))
    assert said in str(refused.value)


def test_without_an_underlay_there_are_no_core_links() -> None:
    for event in ({"at": "1s", "cut": "a--b"}, {"at": "1s", "core": "a--b", "rate": "1Mbit"}):
        with pytest.raises(ScheduleError, match="no core links without an underlay; add one"):
            compile_events([event], Facts(8, Streams(0)))


def test_a_core_link_that_no_message_crosses_can_t_be_cut() -> None:
    with pytest.raises(ScheduleError, match="no messages cross the core link 'paris--milan'"):
        compile_events([{"at": "1s", "cut": "paris--milan"}], Facts(8, Streams(0), core=fleet(EIGHT)))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{"at_round": 1, "cut": "zurich--milan"}], r"events\[0\]: underlay.reroute needs a clock"),
        (
            [{"at": "1s", "cut": "zurich--milan"}, {"at": "2s", "heal": "all"}],
            r"events\[1\]: .*heal does not end a cut; give the cut an end",
        ),
    ],
)
def test_what_can_t_be_rerouted_is_refused(events: list[dict[str, Any]], said: str) -> None:
    underlay = fleet(EIGHT, S)
    with pytest.raises(ValueError, match=said):
        rerouted(compile_events(events, Facts(8, Streams(0), core=underlay)), underlay)
