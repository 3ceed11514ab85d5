"""Nodes that emulate their own links and tell each other shares, in virtual time: arrivals are the link engine's."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
import pytest

from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Payload
from netdfl.links.channel import Links
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.testing.transports import vector_payload
from netdfl.transport.emulated.receipts import REPORT
from netdfl.transport.wire import frame_size
from tests.links.shared_traffic import MB, MBIT, SCENARIOS, Network
from tests.transport.virtual_nodes import MS, VirtualFleet

S = 10**9
HEADER = frame_size(vector_payload(np.zeros(10_000, np.uint8))) - 10_000


def emulating(network: Network, carrier_ns: int = MS) -> VirtualFleet:
    rules, entries = network.written()
    events = compile_events(entries, Facts(16, Streams(0)))
    size = 1 + max(node for _, *edge, _ in network.messages for node in edge)
    return VirtualFleet(
        lambda: Links(LinksSpec(rules, {}, size), Streams(0), events, halves=True), size, events, carrier_ns
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_nodes_that_tell_each_other_shares_arrive_as_the_engine_says(name: str) -> None:
    """Within 5 ms; a notice takes 1 ms, and what it says holds since the change that it is about."""
    network = SCENARIOS[name]
    sent = [(at, *edge, vector_payload(np.zeros(nbytes - HEADER, np.uint8))) for at, *edge, nbytes in network.messages]
    found = emulating(network).arrivals(sent)
    for number, at_ns in network.engine().items():
        came_ns = found[number]
        if at_ns is None or came_ns is None:
            assert came_ns is at_ns, number
        else:
            assert abs(came_ns - at_ns) <= 5 * MS, number


@pytest.mark.parametrize("notice_ms", [1, 5, 20, 50])
def test_where_notices_take_long_nothing_comes_early_over_shared_downlinks(notice_ms: int) -> None:
    """What comes early has had more than its share, which nobody gave up; what comes late waits for a notice or two."""
    network = SCENARIOS["everybody to everybody"]
    sent = [(at, *edge, vector_payload(np.zeros(nbytes - HEADER, np.uint8))) for at, *edge, nbytes in network.messages]
    found = emulating(network, notice_ms * MS).arrivals(sent)
    errors = [(found[number] or 0) - (at_ns or 0) for number, at_ns in network.engine().items()]
    assert len(errors) == 56
    assert min(errors) >= -(2 * notice_ms + 5) * MS
    assert abs(mean(errors)) <= (notice_ms + 1) * MS


def test_a_node_has_one_unanswered_notice_to_each_other_node() -> None:
    """Where notices take long, what changes meanwhile goes in the next one."""
    fleet = emulating(SCENARIOS["everybody to everybody"], 20 * MS)
    messages = SCENARIOS["everybody to everybody"].messages
    fleet.arrivals([(at, *edge, vector_payload(np.zeros(nbytes, np.uint8))) for at, *edge, nbytes in messages])
    assert set(fleet.most_open.values()) == {1}
    assert set(fleet.open_notices.values()) == {0}


DYING = Network(
    [(0, 0, 3, 500_000), (0, 1, 3, MB), (0, 2, 3, 500_000)], {n: 10 * MBIT for n in range(3)}, {3: 8 * MBIT}
)


@pytest.mark.parametrize("crash_ms", [50, 300, 1400])
def test_a_crashed_node_keeps_its_share_of_a_downlink_until_what_it_had_sent_has_come(crash_ms: int) -> None:
    """Others neither get it at the crash, nor miss it afterwards."""
    fleet = emulating(DYING)
    fleet.crash(crash_ms * MS, 0)
    fleet.arrivals(
        [(at, *edge, vector_payload(np.zeros(size - HEADER, np.uint8))) for at, *edge, size in DYING.messages]
    )
    expected = DYING.engine()
    assert [round((expected[number] or 0) / MS) for number in range(3)] == [1503, 2003, 1503]
    late_ms = [(fleet.came_ns[number] - (at_ns or 0)) / MS for number, at_ns in expected.items()]
    assert max(map(abs, late_ms)) <= 10, late_ms


def test_the_shares_of_a_crashed_node_end_one_by_one() -> None:
    """A message to somebody else, that takes longer, keeps no share of this downlink."""
    longer = replace(DYING, messages=[*DYING.messages, (0, 0, 4, 4 * MB)])
    fleet = emulating(longer)
    fleet.crash(300 * MS, 0)
    fleet.arrivals([(at, *edge, vector_payload(np.zeros(n - HEADER, np.uint8))) for at, *edge, n in longer.messages])
    expected = longer.engine()
    assert [round((expected[number] or 0) / MS) for number in (0, 1, 2)] == [1503, 2003, 1503]
    assert (expected[3] or 0) > 3 * S
    assert max(abs(fleet.came_ns[number] - (expected[number] or 0)) for number in (0, 1, 2)) <= 10 * MS


def notice(**meta: Any) -> Message:
    return Message(1, 0, Kind.PROBE, 0, 0, 0, 0, Payload(meta=meta))


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"flow": [1, 2, 3]},
        {"flow": [1, 2, 3, 4, 5]},
        {"flow": [1, 2, -1, 0]},
        {"flow": [1, -1, 3, 0]},
        {"flow": [-1, 2, 3, 0]},
        {"flow": ["1", 2, 3, 0]},
        {"share": 1},
        {"share": [-1, 0]},
        {"share": [(1 << 62) + 1, 0]},
        {"share": [1.5, 0]},
        {"share": [1, 0, 0]},
        {"flow": [1, 2, 3, 0], "share": [-1, 0]},
        {"flow": [1, 2, 3, 0], "refused": 1},
        {"share": [3, 0], "refused": 1},
        {"refused": "1"},
    ],
)
def test_a_notice_that_no_node_writes_is_refused(meta: dict[str, Any]) -> None:
    fleet = emulating(SCENARIOS["up and down at once"])
    with pytest.raises(MalformedMessage, match="a notice of node 1 says"):
        fleet.nodes[0].deliver_with_header(notice(**meta), REPORT)


def test_a_notice_that_tells_of_times_long_ago_or_to_come_changes_no_time_of_this_node() -> None:
    fleet = emulating(SCENARIOS["everybody to everybody"])
    for since_ns in (-(10**30), 10**30):
        fleet.nodes[0].deliver_with_header(notice(flow=[1, 10, 5_000_000, since_ns], share=[10**6, since_ns]), REPORT)
    fleet.clock.run()
    assert fleet.num_notices > 0
    assert [told for told in fleet.times_told if told != 0] == []


def test_a_notice_may_tell_of_a_flow_and_of_a_share_at_once() -> None:
    fleet = emulating(SCENARIOS["everybody to everybody"])
    fleet.nodes[0].deliver_with_header(notice(flow=[1, 10, 5_000_000, 0], share=[1 << 62, 0]), REPORT)
    fleet.nodes[0].deliver_with_header(notice(share=[0, 1 << 62]), REPORT)
    fleet.nodes[0].deliver_with_header(notice(flow=[0, 0, 0, -1]), REPORT)
