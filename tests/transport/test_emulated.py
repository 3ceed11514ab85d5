"""Links emulated above gRPC: the contract of transports, and the fates that the simulated world gives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from netdfl.core.clock import NS_PER_S, RealClock
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Message, Payload, unicasts
from netdfl.links.rules.base import Transit
from netdfl.testing.transports import TRANSPORT_CHECKS, KeptLedger, KeptSink
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.transport.grpc import stream
from netdfl.transport.link_header import LinkHeader
from netdfl.transport.shared_memory.memory import SharedMemory
from netdfl.transport.wire import frame_size
from tests.links.driving import drive
from tests.transport.checks import FULL_MAILBOX_RARELY
from tests.transport.emulated_fleets import MS, emulated_fleet, links_of, messages
from tests.transport.grpc_fleet import OPTIONS

IN_TURN = {"rate": "1bit", "sharing": "fifo"}
"""A downlink in which the receiver holds messages for good."""
PERFECT: Mapping[str, Any] = {}
IDLE = {"default": {"latency": "1ms", "downlink": "100Gbit"}}
PATIENT = replace(OPTIONS, close_grace=60 * NS_PER_S)
"""Whatever else the machine does, what is queued leaves before the transport closes."""
HOUR = 3600 * NS_PER_S


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance(check):
    await check(partial(emulated_fleet, block=PERFECT))


@pytest.mark.parametrize("check", FULL_MAILBOX_RARELY)
async def test_conformance_at_a_short_delay(check):
    await check(partial(emulated_fleet, block=IDLE))


@pytest.mark.parametrize("check", FULL_MAILBOX_RARELY)
async def test_conformance_with_bodies_and_answers_in_memory(check):
    await check(partial(emulated_fleet, block=IDLE, memory=SharedMemory(range(8), 1 << 24, 0)))


@pytest.mark.parametrize("give_up", [lambda a: a.set_gone(1), lambda a: a.set_peer(1, "127.0.0.1:1", epoch=1)])
async def test_what_a_peer_that_is_given_up_holds_is_gone_though_nobody_looked(give_up, monkeypatch):
    """That it holds the message lies in memory, and is looked for when it is given up."""
    monkeypatch.setattr(stream, "LOOK_S", 3600.0)
    ledger, sink = KeptLedger(), KeptSink(capacity=1)
    async with emulated_fleet(2, ledger, memory=SharedMemory(range(2), 1 << 20, 0)) as (a, b):
        b.attach(sink)
        sent = messages(2)
        await a.send(unicasts(sent[:1]))
        await ledger.until_settled(1)
        await a.send(unicasts(sent[1:]))
        await sink.until_waiting()
        assert len(ledger.rows) == 1
        give_up(a)
        assert [row.fate.text for row in ledger.rows] == ["delivered", "failed:gone"]


def simulated_fates(block: Mapping[str, Any], sent: Sequence[Message]) -> list[tuple[int, int, str]]:
    """What the simulated world makes of `sent`, 10 ms apart: (round, copy, fate) of each unit."""
    units = [
        (t * 10 * MS, Transit(m.src, m.dst, m.kind, m.round, m.step, m.attempt, frame_size(m.payload)))
        for t, m in enumerate(sent)
    ]
    fates = drive(links_of(block), (), units)
    return sorted((f.unit.round, f.unit.copy, f"dropped:{f.reason}" if f.reason else "delivered") for f in fates)


LOSSY = {
    "default": {
        "loss": {"model": "gilbert_elliott", "p": 0.3, "r": 0.4},
        "corrupt": 0.2,
        "duplicate": 0.2,
        "latency": {"dist": "uniform", "low": "1ms", "high": "9ms"},
    }
}


async def test_the_same_messages_are_lost_damaged_and_doubled_as_in_the_simulated_world():
    ledger, sink, sent = KeptLedger(), KeptSink(), messages(60)
    expected = simulated_fates(LOSSY, sent)
    async with emulated_fleet(2, ledger, LOSSY) as (a, b):
        b.attach(sink)
        for message in sent:
            await a.send(unicasts([message]))
        await ledger.until_settled(len(expected))
    assert sorted((row.message.round, row.fate.text) for row in ledger.rows) == [(r, fate) for r, _, fate in expected]
    assert len({fate for _, _, fate in expected}) == 3
    assert any(copy for _, copy, _ in expected)
    came = [(r, copy) for r, copy, fate in expected if fate == "delivered"]
    assert sorted(m.round for m in sink.messages) == [r for r, _ in came]
    assert len(ledger.handed) == len(expected)


async def test_what_is_lost_never_reaches_the_real_transport():
    ledger = KeptLedger()
    async with emulated_fleet(2, ledger, {"0->1": {"loss": 1.0}}) as (a, _):
        carried = []
        a.carrier.carry = lambda message, link_header: carried.append(message)
        await a.send(unicasts(messages(5)))
    assert [row.fate.text for row in ledger.rows] == ["dropped:loss"] * 5
    assert all(row.arrived_ns is None for row in ledger.rows)
    assert carried == []


async def test_a_rate_and_a_latency_are_kept_and_so_is_the_order():
    ledger, sink = KeptLedger(), KeptSink()
    arrivals: list[tuple[int, int, int]] = []
    block = {"default": {"rate": "1Mbit", "latency": "30ms"}}
    sent = messages(3)
    async with emulated_fleet(
        2, ledger, block, measure=lambda src, n, sent, due, at: arrivals.append((sent, due, at))
    ) as (a, b):
        b.attach(sink)
        await a.send(unicasts(sent))
        await ledger.until_settled(3)
    assert [m.round for m in sink.messages] == [0, 1, 2]
    takes = 8 * frame_size(sent[0].payload) * 1000
    due_ns = [due for _, due, _ in arrivals]
    assert all(due - left >= takes + 30 * MS for left, due, _ in arrivals)
    assert all(later - earlier >= takes for earlier, later in pairwise(due_ns))
    assert all(at >= due for _, due, at in arrivals)
    rows = sorted(ledger.rows, key=lambda row: row.message.round)
    assert all(row.arrived_ns >= due for row, due in zip(rows, due_ns, strict=True))


async def test_what_waited_for_room_at_its_receiver_is_no_lateness_of_the_emulation():
    """A paused node takes nothing: one message has come in time, those sent then are due long before it goes on."""
    ledger, sink, due = KeptLedger(), KeptSink(capacity=0), list[int]()
    async with emulated_fleet(
        2, ledger, {"default": {"latency": "5ms"}}, measure=lambda src, n, sent, at, _: due.append(at)
    ) as (a, b):
        b.attach(sink)
        await a.send(unicasts(messages(1)))
        await sink.until_waiting()
        await a.send(unicasts(messages(3)[1:]))
        await asyncio.sleep(0.05)
        sink.make_room()
        await ledger.until_settled(3)
        await a.send(unicasts(messages(4)[3:]))
        await ledger.until_settled(4)
    assert len(due) == 2


async def test_senders_share_the_downlink_of_their_receiver():
    ledger, sink = KeptLedger(), KeptSink()
    due: list[int] = []
    async with emulated_fleet(
        3,
        ledger,
        {"2": {"downlink": {"rate": "20kbit", "sharing": "fifo"}}},
        measure=lambda src, n, sent, at, _: due.append(at - sent),
    ) as (a, b, c):
        c.attach(sink)
        await a.send(unicasts(messages(1, (0, 2))))
        await b.send(unicasts(messages(1, (1, 2))))
        await ledger.until_settled(2)
    takes = 8 * frame_size(messages(1, (0, 2))[0].payload) * 50_000  # far longer than from one send to the other
    assert min(due) >= takes
    assert max(due) > takes
    assert [row.fate.text for row in ledger.rows] == ["delivered"] * 2


async def test_a_full_queue_before_a_downlink_drops_at_the_tail_and_the_sender_learns_it():
    ledger = KeptLedger()
    block = {"1": {"downlink": {"rate": "100kbit", "queue": {"messages": 1}, "sharing": "fifo"}}}
    async with emulated_fleet(2, ledger, block) as (a, b):
        b.attach(KeptSink())
        await a.send(unicasts(messages(4)))
        await ledger.until_settled(4)
    fates = {row.message.round: row.fate.text for row in ledger.rows}
    assert fates == {0: "delivered", 1: "delivered", 2: "dropped:queue", 3: "dropped:queue"}


async def test_a_link_that_holds_lets_everything_go_when_the_schedule_heals_it():
    ledger, sink = KeptLedger(), KeptSink()
    entries = [{"at": "0s", "for": "150ms", "link": "0->1", "state": "down_hold"}]
    async with emulated_fleet(2, ledger, {}, entries) as (a, b):
        b.attach(sink)
        await a.send(unicasts(messages(4)))
        assert ledger.rows == []
        await ledger.until_settled(4)
    assert [m.round for m in sink.messages] == [0, 1, 2, 3]
    assert all(row.arrived_ns >= 150 * MS for row in ledger.rows)


@pytest.mark.parametrize(("link", "fate"), [({"latency": "1ms"}, "delivered"), ({"corrupt": 1.0}, "dropped:corrupt")])
async def test_a_new_rate_of_a_downlink_frees_what_waits_there(link, fate):
    ledger = KeptLedger()
    entries = [{"at": "150ms", "node": 1, "downlink": "100Mbit"}]
    async with emulated_fleet(2, ledger, {"1": {"downlink": IN_TURN}, "0->1": link}, entries) as (a, b):
        b.attach(KeptSink())
        await a.send(unicasts(messages(3)))
        await ledger.until_settled(3)
    assert [row.fate.text for row in ledger.rows] == [fate] * 3
    assert all(row.arrived_ns is None or row.arrived_ns >= 150 * MS for row in ledger.rows)


async def test_a_reset_drops_what_is_under_way():
    ledger = KeptLedger()
    entries = [{"at": "150ms", "link": "0->1", "state": "down_reset"}]
    async with emulated_fleet(2, ledger, {"0->1": {"latency": "10s"}}, entries) as (a, b):
        b.attach(KeptSink())
        await a.send(unicasts(messages(3)))
        await ledger.until_settled(3)
    assert [row.fate.text for row in ledger.rows] == ["dropped:reset"] * 3


async def test_rules_by_round_act_on_the_messages_of_their_rounds():
    ledger = KeptLedger()
    entries = [{"at_round": 2, "for_rounds": 2, "link": "0->1", "state": "down_drop"}]
    async with emulated_fleet(2, ledger, {}, entries) as (a, b):
        b.attach(KeptSink())
        await a.send(unicasts(messages(6)))
        await ledger.until_settled(6)
    assert [row.message.round for row in ledger.rows if row.fate.text == "dropped:down"] == [2, 3]


async def test_undetected_damage_flips_one_bit_of_the_receivers_copy():
    ledger, sink, sent = KeptLedger(), KeptSink(), messages(1)
    async with emulated_fleet(2, ledger, {"default": {"corrupt": {"probability": 1.0, "mode": "deliver"}}}) as (a, b):
        b.attach(sink)
        await a.send(unicasts(sent))
        await ledger.until_settled(1)
    before, after = (np.frombuffer(m.payload.arrays["x"].data, np.uint8) for m in (sent[0], sink.messages[0]))
    assert int(np.unpackbits(before ^ after).sum()) == 1
    assert ledger.rows[0].fate.text == "delivered"


def news_of(node: EmulatedTransport) -> asyncio.Event:
    """Set as soon as the carrier of `node` has said what became of a message."""
    there, settled = asyncio.Event(), node.receipts.settled
    node.receipts.settled = lambda *news: (settled(*news), there.set())
    return there


async def test_what_a_lost_receiver_held_fails_and_a_leaving_sender_settles_the_rest():
    ledger = KeptLedger()
    async with emulated_fleet(3, ledger, {"1": {"downlink": IN_TURN}, "0->2": {"latency": "10s"}}) as (a, b, c):
        for each in (b, c):
            each.attach(KeptSink())
        there = news_of(a)
        await a.send(unicasts([*messages(1), *messages(1, (0, 2))]))
        await there.wait()
        assert ledger.rows == []
        a.set_gone(1)
        assert [(row.message.dst, row.fate.text) for row in ledger.rows] == [(1, "failed:gone")]
        await a.aclose()
        assert [(row.message.dst, row.fate.text) for row in ledger.rows[1:]] == [(2, "in_flight")]


async def test_a_node_about_to_crash_hands_over_what_it_sent_before():
    ledger, sink, clock = KeptLedger(), KeptSink(), RealClock()
    an_hour = {"0->1": {"latency": "1h"}}
    async with emulated_fleet(2, ledger, an_hour, options=PATIENT, clock=clock) as (a, b):
        b.attach(sink)
        await a.send(unicasts(messages(2)))
        await a.hand_over()
        await a.aclose()
        assert [row.fate.text for row in ledger.rows] == ["in_flight"] * 2
        assert sink.messages == []
        clock.start_ns -= HOUR
        b.begin()
        assert [message.round for message in sink.messages] == [0, 1]


def test_a_link_header_comes_back_as_it_was_and_any_other_length_is_malformed():
    link_header = LinkHeader(2**40 + 3, -5, 1 << 60, 1, True)
    assert LinkHeader.read(link_header.pack()) == link_header
    for data in (b"x", link_header.pack()[:-1], link_header.pack() + b"\0"):
        with pytest.raises(MalformedMessage, match="link header"):
            LinkHeader.read(data)


@pytest.mark.parametrize("meta", [{}, {"fates": 3}, {"fates": [3]}, {"fates": [[1, 2, 3]]}])
async def test_a_report_that_is_none_is_refused_and_changes_nothing(meta):
    ledger = KeptLedger()
    async with emulated_fleet(2, ledger, {"0->1": {"latency": "10s"}}) as (a, b):
        await a.send(unicasts(messages(1)))
        b.carrier.carry(messages(1, (1, 0))[0]._replace(payload=Payload(meta=meta)), b"")
        await ledger.until_refused(1)
        assert [(edge, reason) for edge, reason, _ in ledger.refusals] == [((1, 0), "malformed")]
        assert ledger.rows == []


async def test_nobody_reports_what_was_sent_to_another():
    ledger = KeptLedger()
    async with emulated_fleet(3, ledger, {"1": {"downlink": IN_TURN}}) as (a, b, c):
        b.attach(KeptSink())
        there = news_of(a)
        await a.send(unicasts(messages(1)))
        await there.wait()
        for liar, fate in ((c, "late"), (b, "delivered")):
            claim = Payload(meta={"fates": [[1, fate, 5]]})
            liar.carrier.carry(messages(1, (liar.node, 0))[0]._replace(payload=claim), b"")
            await liar.carrier.hand_over()
        await ledger.until_settled(1)
    assert [(row.fate.text, row.arrived_ns) for row in ledger.rows] == [("delivered", 5)]
