"""A message is handed over before it is due, but not past a change of its link."""

from __future__ import annotations

from netdfl.core.types import unicasts
from netdfl.testing.transports import KeptLedger, KeptSink
from netdfl.transport.link_header import LinkHeader
from tests.transport.emulated_fleets import MS, emulated_fleet, messages


async def test_a_message_is_handed_over_before_it_is_due_but_not_past_a_change():
    ledger, ahead = KeptLedger(), []
    entries = [{"at": "30s", "link": "0->2", "state": "down_drop"}]
    block = {"0->1": {"latency": "100ms"}, "0->2": {"latency": "1h"}}
    async with emulated_fleet(3, ledger, block, entries) as (a, b, _):
        b.attach(KeptSink())
        carry, clock = a.carrier.carry, a._clock
        a.carrier.carry = lambda message, link_header: (
            ahead.append((message.dst, LinkHeader.read(link_header).due_ns - clock.now_ns())),
            carry(message, link_header),
        )
        a._lead_ns = 2 * 3600 * 1000 * MS
        await a.send(unicasts([*messages(1), *messages(1, (0, 2))]))
        assert [dst for dst, _ in ahead] == [1]
        assert ahead[0][1] > 0
        await ledger.until_settled(1)
