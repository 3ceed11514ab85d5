"""Nodes whose core links the supervisor divides, in virtual time: arrivals are those of the simulated world."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import numpy as np
import pytest

from netdfl.testing.transports import KeptSink, data_message, vector_payload
from netdfl.transport.wire import frame_size
from tests.transport.virtual_nodes import MS, VirtualFleet
from tests.underlay.core_traffic import ACCESS, CORE_TRAFFIC, EIGHT, CoreTraffic, in_waves
from tests.underlay.sites import FIGURES, MB, S, shortest

HEADER = frame_size(vector_payload(np.zeros(10_000, np.uint8))) - 10_000


def emulated(traffic: CoreTraffic, carrier_ns: int = MS) -> tuple[VirtualFleet, dict[int, int | None]]:
    events, size = traffic.events, len(traffic.site_of)
    fleet = VirtualFleet(traffic.links, size, events, carrier_ns, traffic.division())
    sent = [(at, *edge, vector_payload(np.zeros(nbytes - HEADER, np.uint8))) for at, *edge, nbytes in traffic.messages]
    return fleet, dict(fleet.arrivals(sent))


@pytest.mark.parametrize("name", CORE_TRAFFIC)
def test_core_links_of_real_nodes_carry_as_the_simulated_ones(name: str) -> None:
    """Within 10 ms; a notice takes 1 ms, and what it says holds since the change that it is about."""
    traffic = CORE_TRAFFIC[name]
    _, found = emulated(traffic)
    expected = traffic.engine()
    assert found.keys() == expected.keys()
    for number, at_ns in expected.items():
        came_ns = found[number]
        if at_ns is None or came_ns is None:
            assert came_ns is at_ns, number
        else:
            assert abs(came_ns - at_ns) <= 10 * MS, (number, came_ns, at_ns)


def test_a_node_about_to_crash_hands_over_what_waits_for_its_rate() -> None:
    """The answer takes longer than the node lives; the message goes at the whole rate of its narrowest core link."""
    traffic = CORE_TRAFFIC["a core link with cross traffic"]
    fleet, sink = VirtualFleet(traffic.links, 8, (), 300 * MS, traffic.division()), KeptSink()
    fleet.nodes[4].attach(sink)
    fleet.send(0, data_message((0, 4), 0, vector_payload(np.zeros(100_000, np.uint8))))

    def crash() -> None:
        with pytest.raises(StopIteration):
            fleet.nodes[0].hand_over().send(None)

    fleet.clock.call_at(250 * MS, ("crash",), crash)
    fleet.clock.run()
    assert [message.src for message in sink.messages] == [0]


DYING = CoreTraffic(EIGHT, [(0, 0, 4, 600_000), (0, 1, 5, MB), (0, 2, 4, 600_000)], ACCESS)
"""All cross the core link from Zurich to Milan, of 8 Mbit/s."""


@pytest.mark.parametrize("crash_ms", [50, 300, 1700])
def test_a_crashed_node_keeps_its_share_of_core_links_until_what_it_had_sent_has_passed(crash_ms: int) -> None:
    """Others neither get it at the crash, nor miss it afterwards."""
    fleet = VirtualFleet(DYING.links, 8, (), MS, DYING.division())
    fleet.crash(crash_ms * MS, 0)
    fleet.arrivals(
        [(at, *edge, vector_payload(np.zeros(size - HEADER, np.uint8))) for at, *edge, size in DYING.messages]
    )
    expected = DYING.engine()
    assert [round((expected[number] or 0) / MS) for number in range(3)] == [1808, 2208, 1805]
    late_ms = [(fleet.came_ns[number] - (at_ns or 0)) / MS for number, at_ns in expected.items()]
    assert max(map(abs, late_ms)) <= 10, late_ms


def core_links(traffic: CoreTraffic, src: int, dst: int) -> list[str]:
    return shortest(FIGURES, traffic.site_of[src], traffic.site_of[dst]) or []


def most_loaded(traffic: CoreTraffic, found: dict[int, int | None]) -> float:
    """The mean load of the core link that carried most, from its first message to its last, as a part of its rate."""
    messages: dict[str, list[int]] = defaultdict(list)
    for number, (_, src, dst, _) in enumerate(traffic.messages):
        for link in core_links(traffic, src, dst):
            messages[link].append(number)
    loads = []
    for link, numbers in messages.items():
        a, b = link.split("->")
        figures = FIGURES.get(link) or FIGURES.get(f"{a}--{b}") or FIGURES[f"{b}--{a}"]
        took_s = max(found[n] or 0 for n in numbers) / S - 0.003 - min(traffic.messages[n][0] for n in numbers)
        loads.append(sum(8 * traffic.messages[n][3] for n in numbers) / took_s / (figures.rate_bps or 1))
    return max(loads)


@pytest.mark.parametrize("apart_s", [0.02, 0.1])
@pytest.mark.parametrize("notice_ms", [1, 5, 20, 50, 100])
def test_where_notices_take_long_no_core_link_carries_more_than_its_rate(notice_ms: int, apart_s: float) -> None:
    """The mean error is a small multiple of a notice's time, early or late, however many waves there are.

    Up to 5 % more than its rate may cross a core link: what was sent before anybody could know of the others.
    """
    traffic = in_waves(apart_s)
    _, found = emulated(traffic, notice_ms * MS)
    expected = traffic.engine()
    assert 0.9 < most_loaded(traffic, expected) < 1.0, "else this shows nothing"
    assert most_loaded(traffic, found) <= 1.05
    core = [n for n, (_, src, dst, _) in enumerate(traffic.messages) if core_links(traffic, src, dst)]
    errors = [(found[n] or 0) - (expected[n] or 0) for n in core]
    assert len(errors) == 36
    assert abs(mean(errors)) <= (2 * notice_ms + 1) * MS
