"""Uplinks that flows share, emulated above gRPC: each message is due when the solver says."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from netdfl.core.types import Payload, unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.emulated.transport import LEAD_NS, LEAD_NS_PER_BYTE
from tests.links.fluid import Transfer, play
from tests.transport.emulated_fleets import emulated_fleet


def zeros(nbytes: int) -> Payload:
    return vector_payload(np.zeros(nbytes, np.uint8))


async def test_flows_of_one_node_share_its_uplink():
    """The solver takes the moments at which messages were really sent; what is handed to gRPC stays as it is."""
    ledger = KeptLedger()
    found: dict[int, tuple[int, int]] = {}
    block = {"0": {"uplink": {"rate": "8Mbit", "sharing": "fair"}}, "0->3": {"rate": "1Mbit"}}
    async with emulated_fleet(
        4, ledger, block, measure=lambda src, nbytes, sent, due, _: found.update({nbytes: (sent, due)})
    ) as nodes:
        for node in nodes[1:]:
            node.attach(KeptSink())
        await nodes[0].send(unicasts([data_message((0, dst), 0, zeros(20_000 * dst)) for dst in (1, 2, 3)]))
        await ledger.until_settled(3)
    rates: dict[Any, Fraction] = {"up": Fraction(8 * 10**6), 3: Fraction(10**6)}
    transfers = [
        Transfer(nbytes, dst, Fraction(sent, 10**9), nbytes, ("up", dst) if dst in rates else ("up",))
        for dst, (nbytes, (sent, _)) in enumerate(sorted(found.items()), start=1)
    ]
    ends = play(transfers, rates)
    assert len(ends) == 3
    for nbytes, end in ends.items():
        assert end is not None
        assert abs(found[nbytes][1] - end * 10**9) <= LEAD_NS + LEAD_NS_PER_BYTE * max(found)
