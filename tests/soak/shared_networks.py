"""Shared links of real nodes against the simulated ones, by traffic that is sent at the same times.

python -m tests.soak.shared_networks

Each network of `tests/links/shared_traffic.py` is emulated above gRPC, by nodes of this process, and simulated with the
times at which its messages were really sent. An arrival may differ by 5 % or 50 ms, the larger; what is lost must be
lost in both. It takes about a minute and a quiet machine: with much beside it, gRPC's connections take longer to open
than the first messages to cross their links.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import numpy as np

from netdfl.core.types import Payload, unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.wire import frame_size
from tests.links.shared_traffic import SCENARIOS, Network
from tests.transport.emulated_fleets import emulated_fleet

S = 10**9


def payload(nbytes: int) -> Payload:
    """A payload whose frame has `nbytes`, or its least size."""
    more = frame_size(vector_payload(np.zeros(10_000, np.uint8))) - 10_000
    return vector_payload(np.zeros(max(0, nbytes - more), np.uint8))


async def emulated(network: Network) -> tuple[Network, dict[int, int | None]]:
    """The traffic as it was sent, and when each message arrives, in ns; None for one that does not."""
    rules, events = network.written()
    nodes = 1 + max(node for _, *edge, _ in network.messages for node in edge)
    ledger = KeptLedger()
    async with emulated_fleet(nodes, ledger, rules, events) as fleet:
        for each in fleet:
            each.attach(KeptSink())
        clock = fleet[0]._clock

        async def send(number: int, at: float, src: int, dst: int, nbytes: int) -> None:
            await asyncio.sleep(at - clock.now_ns() / S)
            await fleet[src].send(unicasts([data_message((src, dst), number, payload(nbytes))]))

        await asyncio.gather(*(send(number, *message) for number, message in enumerate(network.messages)))
        await ledger.until_settled(len(network.messages))
    sent = {row.message.round: row.sent_ns / S for row in ledger.rows}
    messages = [(sent[number], *rest) for number, (_, *rest) in enumerate(network.messages)]
    return replace(network, messages=messages), {row.message.round: row.arrived_ns for row in ledger.rows}


def main() -> int:
    """Print a row for each network; return 1 where an arrival is beyond the bound."""
    bad = 0
    print("| network | messages | mean error | worst error | beyond the bound |\n|---|---|---|---|---|")
    for name, network in SCENARIOS.items():
        as_sent, found = asyncio.run(emulated(network))
        expected = as_sent.engine()
        errors, beyond = [], 0
        for number, at_ns in expected.items():
            came = found.get(number)
            if at_ns is None or came is None:
                beyond += at_ns is not came
                continue
            errors.append(abs(came - at_ns) / S)
            beyond += errors[-1] > max(0.05, 0.05 * at_ns / S)
        bad += beyond
        mean, worst = sum(errors) / len(errors), max(errors)
        print(f"| {name} | {len(expected)} | {1000 * mean:.0f} ms | {1000 * worst:.0f} ms | {beyond} |", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
