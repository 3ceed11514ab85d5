"""Nodes whose core links the supervisor divides, in virtual time: arrivals are those of the simulated world."""

from __future__ import annotations

import numpy as np
import pytest

from netdfl.testing.transports import vector_payload
from netdfl.transport.wire import frame_size
from tests.transport.virtual_nodes import MS, VirtualFleet
from tests.underlay.core_traffic import CORE_TRAFFIC, CoreTraffic

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
