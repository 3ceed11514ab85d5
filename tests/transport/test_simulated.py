"""The simulated transport: the conformance suite on a virtual clock, exact times, and order that nobody decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.core.types import Message, Payload, unicasts
from netdfl.links.channel import Links
from netdfl.links.rules.tcp import TcpTable, default_table
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.testing.transports import TRANSPORT_CHECKS, FleetFactory, KeptLedger, KeptSink, LedgerRow, data_message
from netdfl.transport.base import Ledger
from netdfl.transport.simulated.fabric import Fabric
from netdfl.transport.simulated.transport import SimulatedTransport
from netdfl.worlds.simulated.loop import VirtualClock, VirtualLoop

MS, S = 10**6, 10**9
MEGABYTE = Payload(size=1_000_000)


def perfect_links(num_nodes: int) -> Links:
    return Links(LinksSpec({}, {}, num_nodes), Streams(0))


@asynccontextmanager
async def simulated_fleet(num_nodes: int, ledger: Ledger) -> AsyncIterator[Sequence[SimulatedTransport]]:
    """Nodes on perfect links, on the running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    fabric = loop.source = Fabric(VirtualClock(loop), 0, ledger, perfect_links(num_nodes))
    transports = [SimulatedTransport(fabric, node) for node in range(num_nodes)]
    yield transports
    for transport in transports:
        await transport.aclose()


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
def test_conformance(check: Callable[[FleetFactory], Awaitable[None]]) -> None:
    async def main() -> None:
        await check(simulated_fleet)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def play(
    sends: Sequence[tuple[int, Message]],
    rules: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]] = (),
    *,
    num_nodes: int = 4,
    sinks: Mapping[int, KeptSink] | None = None,
    tcp: TcpTable | None = None,
) -> list[LedgerRow]:
    """Send each message at its time over links with `rules` under `events`; every message's row."""
    schedule = compile_events(events, Facts(num_nodes, Streams(0)))
    loop, ledger = VirtualLoop(), KeptLedger()
    fabric = loop.source = Fabric(
        VirtualClock(loop),
        0,
        ledger,
        Links(LinksSpec(rules, {}, num_nodes), Streams(0), schedule, tcp),
        changing=bool(events),
    )

    async def main() -> None:
        transports = [SimulatedTransport(fabric, node) for node in range(num_nodes)]
        for node, transport in enumerate(transports):
            transport.attach((sinks or {}).get(node) or KeptSink())
        for event in schedule:
            assert event.at_ns is not None
            loop.call_at_ns(event.at_ns, ("event",), lambda event=event: fabric.change(event), 0)
        for at_ns, message in sends:
            await VirtualClock(loop).sleep_until(at_ns)
            await transports[message.src].send(unicasts([message]))
        await asyncio.sleep(1000)
        fabric.leave(*range(num_nodes))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    return ledger.rows


def arrivals(rows: Sequence[LedgerRow]) -> dict[tuple[int, int, int], int | None]:
    """When the message of (src, dst, round) arrived."""
    return {(row.message.src, row.message.dst, row.message.round): row.arrived_ns for row in rows}


def test_three_messages_over_one_link_are_serialized_then_delayed() -> None:
    sends = [(0, data_message((0, 1), t, MEGABYTE)) for t in range(3)]
    rows = play(sends, {"default": {"rate": "8Mbit", "latency": "50ms"}})
    assert arrivals(rows) == {(0, 1, 0): 1050 * MS, (0, 1, 1): 2050 * MS, (0, 1, 2): 3050 * MS}


def test_a_node_with_many_neighbors_forgets_no_link_over_tcp_with_a_message_on_it() -> None:
    sends = [(dst * MS, data_message((0, dst), 0, MEGABYTE)) for dst in range(1, 40)]
    sends.append((40 * MS, data_message((0, 1), 1, Payload(size=1000))))
    came = arrivals(play(sends, {"default": {"rate": "8Mbit", "latency": "5ms"}}, num_nodes=40, tcp=default_table()))
    first, second = (came[0, 1, round] or 0 for round in (0, 1))
    assert second >= first > 1000 * MS


IN_TURN = {"rate": "8Mbit", "sharing": "fifo"}


def test_two_senders_share_a_downlink_at_once_or_in_order_of_arrival_there() -> None:
    sends = [(0, data_message((0, 2), 0, MEGABYTE)), (10 * MS, data_message((1, 2), 0, MEGABYTE))]
    rules = {"0->2": {"latency": "100ms"}, "1->2": {"latency": "10ms"}, "2": {"downlink": "8Mbit"}}
    assert arrivals(play(sends, rules)) == {(1, 2, 0): 2010 * MS, (0, 2, 0): 2090 * MS}
    in_turn = arrivals(play(sends, rules | {"2": {"downlink": IN_TURN}}))
    assert in_turn == {(1, 2, 0): 1020 * MS, (0, 2, 0): 2020 * MS}


def test_an_uplink_serves_all_links_of_its_node() -> None:
    sends = [(0, data_message((0, dst), 0, MEGABYTE)) for dst in (1, 2, 3)]
    for rule, expected in (("8Mbit", [3001, 3001, 3001]), (IN_TURN, [1001, 2001, 3001])):
        rows = play(sends, {"0": {"uplink": rule}, "default": {"latency": "1ms"}})
        assert sorted(at for at in arrivals(rows).values() if at) == [at * MS for at in expected]


def test_equal_arrivals_at_a_downlink_do_not_depend_on_who_sent_first() -> None:
    messages = [data_message((src, 3), 0, MEGABYTE) for src in range(3)]
    found = {
        tuple(sorted(arrivals(play([(0, m) for m in order], {"3": {"downlink": "8Mbit"}})).items()))
        for order in permutations(messages)
    }
    assert len(found) == 1


def test_a_link_that_holds_loses_nothing_and_keeps_order() -> None:
    sends = [(t * MS, data_message((0, 1), t, Payload())) for t in range(20)]
    events = [{"at": "5ms", "for": "1s", "link": "0->1", "state": "down_hold"}]
    rows = play(sends, {"default": {"latency": "1ms"}}, events)
    assert [row.fate.text for row in rows] == ["delivered"] * 20
    assert [row.message.round for row in rows] == list(range(20))
    assert arrivals(rows)[0, 1, 5] == 1006 * MS


def test_a_link_that_drops_says_so_and_one_that_never_heals_ends_in_flight() -> None:
    sends = [(1 * S, data_message((0, 1), 0, Payload())), (1 * S, data_message((0, 2), 0, Payload()))]
    events = [{"at": "0s", "link": "0->1", "state": "down_drop"}, {"at": "0s", "link": "0->2", "state": "down_hold"}]
    fates = {row.message.dst: row.fate.text for row in play(sends, {}, events)}
    assert fates == {1: "dropped:down", 2: "in_flight"}


def test_every_copy_has_its_row() -> None:
    sends = [(0, data_message((0, 1), t, Payload())) for t in range(10)]
    rows = play(sends, {"default": {"duplicate": 1.0, "latency": "1ms"}})
    assert len(rows) == 20


def test_damage_that_is_delivered_flips_one_bit_and_leaves_the_others_payload_alone() -> None:
    sink = KeptSink()
    payload = Payload({"x": data_array(np.zeros(100, np.float32))})
    sends = [(0, data_message((0, dst), 0, payload)) for dst in (1, 2)]
    play(sends, {"0->1": {"corrupt": {"probability": 1.0, "mode": "deliver"}}}, sinks={1: sink})
    bits = int.from_bytes(bytes(sink.messages[0].payload.arrays["x"].data), "little")
    assert bits.bit_count() == 1
    assert not any(payload.arrays["x"].data)


def data_array(values: np.ndarray[Any, Any]) -> Any:
    """A read-only array of a payload."""
    from netdfl.testing.transports import vector_payload

    return vector_payload(values).arrays["x"]


def test_what_comes_for_a_crashed_node_fails() -> None:
    loop, ledger = VirtualLoop(), KeptLedger()
    fabric = loop.source = Fabric(VirtualClock(loop), 0, ledger, perfect_links(2))

    async def main() -> None:
        a, b = (SimulatedTransport(fabric, node) for node in range(2))
        a.attach(KeptSink())
        b.attach(KeptSink(capacity=1))
        await a.send(unicasts([data_message((0, 1), t, Payload()) for t in range(2)]))
        await asyncio.sleep(1)
        fabric.detach(1)
        await a.send(unicasts([data_message((0, 1), 2, Payload())]))
        await asyncio.sleep(1)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert [row.fate.text for row in ledger.rows] == ["delivered", "failed:gone", "failed:gone"]


RULES = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.sampled_from(["0%", "20%", {"model": "gilbert_elliott", "p": 0.1, "r": 0.4}]),
        "latency": st.sampled_from(["0ms", "3ms", {"dist": "lognormal", "mean": "5ms", "jitter": "4ms"}]),
        "rate": st.sampled_from(["1Mbit", {"rate": "1Mbit", "queue": "3kB"}, {"rate": "2Mbit", "burst": "2kB"}]),
        "duplicate": st.sampled_from([0.3]),
        "reorder": st.sampled_from([0.3]),
    },
)


@given(RULES, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(0, 2)), max_size=30), st.booleans())
def test_every_message_ends_once_and_never_arrives_before_it_left(
    rules: dict[str, Any], times: list[tuple[int, int, int]], shared: bool
) -> None:
    sends = [
        (at * MS, data_message((src, dst), number, Payload(size=500)))
        for number, (at, src, dst) in enumerate(sorted(times))
        if src != dst
    ]
    nodes = {"0..2": {"uplink": "4Mbit", "downlink": "2Mbit"}} if shared else {}
    rows = play(sends, {"default": rules, **nodes})
    assert {row.message.round for row in rows} == {message.round for _, message in sends}
    if "duplicate" not in rules:
        assert len(rows) == len(sends)
    for row in rows:
        assert row.arrived_ns is None or row.arrived_ns >= row.sent_ns
        assert row.fate.text in ("delivered", "dropped:loss", "dropped:queue")
