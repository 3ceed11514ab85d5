"""How true links emulated above gRPC are: when messages should arrive, and when they do.

    python benchmarks/fidelity.py [--repeat 3]

Two cases with 1 MB messages and a 5 % bound, each in one event loop with all its nodes, which is harder
than a process for each: three at once over 8 Mbit/s and 50 ms, and two senders into one 8 Mbit/s downlink,
A leaving at 0 ms over 100 ms, B at 10 ms over 10 ms. Prints a JSON list of rows: name, value, unit, reference,
reference_value, ratio, one for each message of each repeat; exits 1 where one of them missed the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import numpy as np
from figures import Row, show

from netdfl.core.clock import RealClock
from netdfl.core.rng import Streams
from netdfl.core.types import unicasts
from netdfl.links.channel import Links
from netdfl.links.spec import LinksSpec
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.transport.grpc.transport import GrpcTransport
from netdfl.transport.security.identity import Identity
from netdfl.transport.wire import frame_size

MB, MS, S = 1_000_000, 1_000_000, 1_000_000_000
BOUND = 0.05
Departure = tuple[int, int, int]  # (source, destination, when, in ns)
Expected = dict[tuple[int, int], float]  # (source, its message's number) -> seconds
CASES: dict[str, tuple[Mapping[str, Any], Sequence[Departure], Expected]] = {
    "three messages, 8 Mbit/s and 50 ms": (
        {"0->1": {"rate": "8Mbit", "latency": "50ms"}},
        [(0, 1, 0)] * 3,
        {(0, 0): 1.05, (0, 1): 2.05, (0, 2): 3.05},
    ),
    "two senders, one 8 Mbit/s downlink": (
        {"0->2": {"latency": "100ms"}, "1->2": {"latency": "10ms"}, "2": {"downlink": "8Mbit"}},
        [(0, 2, 0), (1, 2, 10 * MS)],
        {(0, 0): 2.02, (1, 0): 1.02},
    ),
}


async def measure(block: Mapping[str, Any], departures: Sequence[Departure]) -> Expected:
    """Seconds from the start at which each message arrived."""
    clock, streams, ledger = RealClock(), Streams(1), KeptLedger()
    nodes = [
        EmulatedTransport(
            node,
            lambda inner, node=node: GrpcTransport(  # type: ignore[misc]
                Identity(node, 0, bytes(8), ""), "127.0.0.1:0", clock=clock, ledger=inner
            ),
            Links(LinksSpec(block, {}, 3), streams),
            (),
            clock=clock,
            ledger=ledger,
            seed=1,
        )
        for node in range(3)
    ]
    addresses = [await node.start() for node in nodes]
    for node in nodes:
        node.attach(KeptSink())
        for peer, address in enumerate(addresses):
            if peer != node.node:
                node.set_peer(peer, address)
    clock.start_ns = RealClock().now_ns()
    for node in nodes:
        node.begin()
    try:
        return await run(nodes, clock, ledger, departures)
    finally:
        await asyncio.gather(*(node.aclose() for node in nodes))


async def run(
    nodes: Sequence[EmulatedTransport], clock: RealClock, ledger: KeptLedger, departures: Sequence[Departure]
) -> Expected:
    """Send all, after a first message on each link that opens its connection."""
    for src, dst in {(src, dst) for src, dst, _ in departures}:
        await nodes[src].send(unicasts([data_message((src, dst), 0, vector_payload(np.zeros(1)))]))
    await ledger.until_settled(len({departure[:2] for departure in departures}))
    payload = vector_payload(np.zeros(MB - frame_size(vector_payload(np.zeros(0, np.uint8))), np.uint8))
    warm = len(ledger.rows)
    start = clock.now_ns() + 100 * MS
    for number, (src, dst, at_ns) in enumerate(departures):
        await clock.sleep_until(start + at_ns)
        await nodes[src].send(unicasts([data_message((src, dst), 1 + number, payload)]))
    await ledger.until_settled(warm + len(departures))
    rows = sorted(ledger.rows[warm:], key=lambda row: (row.message.src, row.message.round))
    numbers: dict[int, int] = {}
    found: Expected = {}
    for row in rows:
        src = row.message.src
        assert row.arrived_ns is not None
        found[src, numbers.setdefault(src, 0)] = (row.arrived_ns - start) / S
        numbers[src] += 1
    return found


def main() -> int:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser(description="fidelity of links emulated above gRPC")
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    rows = [
        Row(
            f"{name}: from {src}, its {number + 1}.",
            found[src, number],
            "s",
            "scheduled",
            due,
            found[src, number] / due,
        )
        for name, (block, departures, expected) in CASES.items()
        for found in (asyncio.run(measure(block, departures)) for _ in range(repeat))
        for (src, number), due in expected.items()
    ]
    worst = max(abs(row.ratio - 1) for row in rows)
    show(rows, f"{repeat} of each case; worst error {worst:.2%}, bound {BOUND:.0%}")
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
