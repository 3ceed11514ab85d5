"""Packets in the core: one queue for each direction of a core link, entered one after another, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.engine import as_they_came
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.packets.core_links import PacketCore
from netdfl.underlay.rerouting import rerouted
from netdfl.underlay.sites import CoreFigures, CoreNetwork
from netdfl.underlay.underlay import Underlay
from tests.links.driving import LinkRun
from tests.underlay.sites import FIGURES, MBIT, MS, SITES, fleet

EIGHT = {node: SITES[node // 2] for node in range(8)}
SIZE = 1000
"""A packet takes 0.4 ms of paris->zurich (20 Mbit/s), 1 ms of zurich->milan (8), 0.8 ms of paris->milan (10)."""
Sent = Sequence[tuple[float, int, int]]


def found(
    sent: Sent, *events: dict[str, Any], rules: Any = None, reroute_s: float | None = None, underlay: Any = None
) -> dict[int, Any]:
    """When each packet (at in ms, src, dst) arrives, in ms, or why it is dropped, by its place."""
    underlay = underlay or fleet(EIGHT, None if reroute_s is None else round(reroute_s * 1000 * MS))
    streams = Streams(0)
    compiled = rerouted(compile_events(events, Facts(8, streams, core=underlay)), underlay)
    links = Links(LinksSpec(rules or {}, {}, 8), streams, compiled, fifo=True, core=PacketCore(underlay, streams))
    run = LinkRun(order=as_they_came)
    todo: list[tuple[int, int, Any]] = [(event.at_ns or 0, -1, event) for event in compiled]
    todo += [(round(at * MS), n, (src, dst)) for n, (at, src, dst) in enumerate(sent)]
    for at_ns, n, what in sorted(todo, key=lambda each: each[:2]):
        run.engine.run(at_ns - 1)
        if n < 0:
            run.engine.change(links.apply(what, at_ns), at_ns)
        else:
            run.enter(links.path(*what), Transit(*what, Kind.DATA, 0, 0, n, SIZE), at_ns)
    return {end.unit.attempt: end.reason or end.at_ns / MS for end in run.finish()}


def test_packets_of_all_edges_go_through_each_core_link_in_turn() -> None:
    # both edges queue before zurich->milan; milan->vienna takes 4/3 ms a packet, and its delays add up
    ends = found([(0, 0, 4), (0, 2, 4), (0, 1, 5), (0, 2, 6)])
    assert ends[1] == 1 + 2
    assert ends[3] == pytest.approx(2 + 2 + 8 / 6 + 4, abs=1e-6)
    assert ends[0] == 0.4 + 3 + 1 + 2
    assert ends[2] == 0.4 + 3 + 1 + 1 + 2


def test_each_direction_has_a_queue_of_its_own_and_a_site_none() -> None:
    assert found([(0, 0, 4), (0, 4, 0), (0, 0, 1)]) == {0: 6.4, 1: 6.4, 2: 0}


def test_uplinks_and_downlinks_stand_before_and_behind_the_core() -> None:
    rules = {"0": {"uplink": "4Mbit"}, "4": {"downlink": "2Mbit"}, "0->4": {"latency": "1ms"}}
    assert found([(0, 0, 4), (0, 2, 4)], rules=rules) == {1: 1 + 2 + 4, 0: 2 + 1 + 0.4 + 3 + 1 + 2 + 4}


def test_a_full_queue_drops_at_its_tail() -> None:
    figures = {"paris--zurich": CoreFigures(0, 8 * MBIT, 0.0, 2 * SIZE)}
    two = Underlay(CoreNetwork(figures), {n: SITES[n % 2] for n in range(8)})
    # one is sent, two wait, the fourth has no room, and 1 ms later there is room for one
    ends = found([(0, 0, 1), (0, 2, 1), (0, 0, 3), (0, 4, 1), (1, 6, 1), (1, 6, 1)], underlay=two)
    assert ends == {0: 1, 1: 2, 2: 3, 3: "queue", 4: 4, 5: "queue"}


def test_a_core_link_takes_another_rate_and_another_delay() -> None:
    slow = {"at": "1ms", "for": "1s", "core": "zurich->milan", "rate": "x0.5"}
    # the second packet waits at 1 ms, then takes 2 ms
    assert found([(0, 2, 4), (0, 3, 4), (2000, 2, 4)], slow) == {0: 3, 1: 1 + 2 + 2, 2: 2003}
    late = {"at": "2ms", "core": "zurich->milan", "latency": "50ms"}
    assert found([(0, 2, 4), (1.5, 3, 4)], late) == {0: 3, 1: 2.5 + 50}


def test_each_edge_has_its_own_luck_on_a_core_link() -> None:
    sent: Sent = [(2 * n, 2 + n % 2, 4) for n in range(400)] + [(2 * n, 4, 2) for n in range(100)]
    lossy = {"at": "0s", "core": "zurich->milan", "loss": "25%"}
    ends = found(sent, lossy)
    lost = [n for n, end in ends.items() if end == "loss"]
    assert 70 <= len(lost) <= 130
    assert max(lost) < 400
    assert {n % 2 for n in lost} == {0, 1}
    again = found(sent, {"at": "0s", "core": "zurich->milan", "rate": "7Mbit"}, lossy)
    assert [n for n, end in again.items() if end == "loss"] == lost
    assert "loss" not in found(sent, lossy | {"at": "799ms"}).values()
    always = Underlay(CoreNetwork(FIGURES | {"zurich--milan": CoreFigures(0, None, 1.0)}), EIGHT)
    assert found([(0, 2, 4), (0, 0, 2)], underlay=always) == {0: "loss", 1: 3.4}


CUT: dict[str, Any] = {"at": "2ms", "for": "10ms", "cut": "zurich->milan"}


def test_a_cut_drops_what_reaches_the_link_and_lets_pass_what_has_entered_it() -> None:
    # the first has entered the link; the second is still on its way from Paris then
    sent: Sent = [(0.5, 2, 4), (1, 0, 4), (3, 2, 4), (3, 4, 2), (3, 0, 2), (12, 2, 4)]
    ends = {0: 3.5, 1: "down", 2: "down", 3: 3 + 3, 4: 3 + 0.4 + 3, 5: 15}
    assert found(sent, CUT) == ends
    waiting: Sent = [(1.5, 2, 4), (1.5, 3, 4)]
    assert found(waiting, CUT) == {0: 4.5, 1: 5.5}
    reset = CUT | {"mode": "down_reset"}
    assert found([*sent, *waiting], reset) == ends | {0: "reset", 6: "reset", 7: "reset"}


def test_a_core_link_that_two_cuts_take_down_is_up_when_both_are_over() -> None:
    second = {"at": "5ms", "for": "10ms", "cut": "zurich--milan"}
    assert found([(13, 2, 4), (15, 2, 4)], CUT, second) == {0: "down", 1: 18}


def test_packets_take_the_new_way_once_routes_are_found_and_the_old_one_afterwards() -> None:
    sent: Sent = [(1, 0, 4), (3, 0, 4), (8, 0, 4), (8, 4, 0), (8, 2, 4), (14, 0, 4), (20, 0, 4)]
    straight = 0.8 + 9
    assert found(sent, CUT, reroute_s=0.005) == {
        0: "down",
        1: "down",
        2: 8 + straight,
        3: 8 + 6.4,
        4: pytest.approx(8 + 0.4 + 3 + straight),
        5: 14 + straight,
        6: 20 + 6.4,
    }


def test_what_is_under_way_when_routes_change_stays_on_its_way() -> None:
    # at 17 ms routes are back over Zurich; the packet that left just before still goes straight to Milan
    assert found([(16.9, 0, 4), (17, 0, 4)], CUT, reroute_s=0.005) == {0: 16.9 + 0.8 + 9, 1: 17 + 6.4}
