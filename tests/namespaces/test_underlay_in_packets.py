"""Core links between namespaces: a way that is found anew. `test_shared_packets.py` has the queue that nodes share."""

from __future__ import annotations

import time
from pathlib import Path

from tests.namespaces.udp_probe import Probe, network

MS = 10**6
SITES = {
    "links": {"a--b": {"latency": "5ms", "rate": "10Mbit"}, "b--c": {"latency": "5ms"}, "a--c": {"latency": "40ms"}}
}


def test_packets_go_another_way_once_routes_are_found_anew(tmp_path: Path) -> None:
    events = [{"at": "300ms", "cut": "a--b"}]
    with network(tmp_path, {}, events, nodes=3, underlay=SITES | {"reroute": "300ms"}) as made:
        began, probe = time.monotonic_ns(), Probe(made, 0, 2)
        while time.monotonic_ns() < began + 900 * MS:
            probe.send()
            probe.take(0.004)
        probe.take(0.1)
        probe.close()
        counts = made.end()["packets"]
    late = 50 * MS
    delays = {n: arrived - sent for n, (sent, arrived) in probe.came.items()}
    when = {n: at - began for n, at in enumerate(probe.sent)}
    assert all(delays[n] >= 10 * MS for n in when if when[n] < 300 * MS - late)
    assert all(n not in delays for n in when if 300 * MS + late < when[n] < 600 * MS - late)
    assert all(delays[n] >= 40 * MS for n in when if when[n] > 600 * MS + late)
    assert counts["dropped"] == {"down": len(when) - len(delays)}
