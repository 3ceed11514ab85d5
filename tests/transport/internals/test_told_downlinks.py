"""Shared downlinks of real nodes: what the receiver tells is what the senders go by."""

from __future__ import annotations

import numpy as np

from netdfl.core.clock import RealClock
from netdfl.core.types import Message, unicasts
from netdfl.links.sharing.capacity import PARTS
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.emulated.transport import EmulatedTransport
from tests.transport.emulated_fleets import emulated_fleet
from tests.transport.grpc_fleet import until

FAIR = {"rate": "8Mbit", "sharing": "fair"}


def large(src: int, dst: int, nbytes: int = 20_000_000) -> list[Message]:
    return [data_message((src, dst), 0, vector_payload(np.zeros(nbytes, np.uint8)))]


def rate_bps(sender: EmulatedTransport, dst: int) -> int | None:
    """The rate at which `sender` sends to `dst` now."""
    told = sender._links.told
    link = None if told is None else told.links.get((sender.node, dst))
    flow = None if link is None else next(iter(link.flows), None)
    return None if flow is None else round((flow.rate or 0) / PARTS)


async def test_senders_are_told_their_shares_of_a_downlink_and_get_back_what_others_leave() -> None:
    """Messages of 20 s, of which only the rates are looked at."""
    block = {"0": {"uplink": FAIR}, "1": {"uplink": FAIR}, "2": {"downlink": FAIR}, "1->2": {"rate": "2Mbit"}}
    async with emulated_fleet(3, KeptLedger(), block) as (a, b, c):
        c.attach(KeptSink())
        await a.send(unicasts(large(0, 2)))
        await until(lambda: rate_bps(a, 2) == 8_000_000)
        await b.send(unicasts(large(1, 2)))
        await until(lambda: (rate_bps(a, 2), rate_bps(b, 2)) == (6_000_000, 2_000_000))
        b._up.withdraw(lambda flight: True, RealClock().now_ns())
        b._advance()
        await until(lambda: rate_bps(a, 2) == 8_000_000)


async def test_the_share_of_a_node_about_to_crash_is_free_once_its_message_has_passed() -> None:
    """When that is, `test_shares_in_virtual_time` holds."""
    block = {"0..1": {"uplink": FAIR}, "2": {"downlink": FAIR}}
    async with emulated_fleet(3, KeptLedger(), block) as (a, b, c):
        c.attach(KeptSink())
        await a.send(unicasts(large(0, 2)))
        await b.send(unicasts(large(1, 2, 1_000_000)))
        await until(lambda: rate_bps(a, 2) == rate_bps(b, 2) == 4_000_000)
        await b.hand_over()
        await until(lambda: rate_bps(a, 2) == 8_000_000)


async def test_a_message_that_finds_a_shared_downlink_full_is_dropped_and_its_sender_learns_it() -> None:
    ledger = KeptLedger()
    block = {"1..3": {"uplink": FAIR}, "0": {"downlink": FAIR | {"rate": "100kbit", "queue": {"messages": 1}}}}
    async with emulated_fleet(4, ledger, block) as (a, b, c, d):
        a.attach(KeptSink())
        await b.send(unicasts(large(1, 0, 100_000)))
        await until(lambda: rate_bps(b, 0) == 100_000)
        await c.send(unicasts(large(2, 0, 100_000)))
        await until(lambda: rate_bps(b, 0) == rate_bps(c, 0) == 50_000)
        await d.send(unicasts(large(3, 0, 20_000)))
        await ledger.until_settled(1)
    assert [(row.message.src, row.fate.text) for row in ledger.rows[:1]] == [(3, "dropped:queue")]
