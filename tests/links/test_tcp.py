"""The model of TCP: exact where nothing is lost, and at the table's own points; in order; nothing lost."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from driving import drive
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import DROPPED, Departure, Drop, Transit
from netdfl.links.rules.latency import constant
from netdfl.links.rules.loss import Bernoulli, DropList, Match
from netdfl.links.rules.rate import Shape, serial
from netdfl.links.rules.tcp import HEADERS, SEGMENT, Tcp, TcpTable, default_table, on_the_line_ns
from netdfl.links.spec import LinksSpec

MS = 10**6
DEAD = -1
TABLE = TcpTable(
    sizes=(1000, 100_000, 1_000_000),
    losses=(0.0, 0.1, 0.2),
    rtts_ns=(40 * MS, 100 * MS),
    rates_bps=(1e7, 1e8),
    levels=(0.0, 0.5, 0.9),
    excess_us=tuple((place * 1000, 2 * place * 1000, 5 * place * 1000) for place in range(36)),
    dead=(0.0,) * 32 + (0.32, 0.33, 0.34, 0.35),
    depths=(0.0, 1.0, 2.0, 3.0),
    single_us=tuple(tuple(timeout_us * (2**lost - 1) for lost in range(4)) for timeout_us in 2 * (240_000, 300_000)),
    timeout_ns=200 * MS,
    timeout_rtts=1.0,
    dead_ns=10**11,
)


def message(number: int, nbytes: int = 1000) -> Transit:
    return Transit(0, 1, Kind.DATA, number, 0, 0, nbytes)


def stage(loss: float = 0.0, rate_bps: float = 8e6, delay_ms: int = 20) -> Tcp:
    return Tcp(7, TABLE, Bernoulli(0, probability=loss), serial(rate=rate_bps), constant(delay=delay_ms * MS))


def test_without_loss_a_segment_takes_its_way_and_its_bytes() -> None:
    assert stage().advance(message(0, 948), 5) == 5 + 20 * MS + 1000 * 1000
    assert stage().advance(message(0, SEGMENT), 0) == 20 * MS + (SEGMENT + HEADERS) * 1000


def test_a_lost_segment_comes_after_timeouts_that_double() -> None:
    tcp, count = stage(loss=0.1), 20_000
    excess = [tcp.advance(message(n, 948), n * 10**12) - n * 10**12 - 21 * MS for n in range(count)]
    for lost in (1, 2, 3):
        share = 0.1**lost
        late = sum(each >= 240 * MS * (2**lost - 1) - 1 for each in excess)
        assert abs(late - share * count) < 4 * (count * share * (1 - share)) ** 0.5
    assert {round(each / MS) for each in excess if each < 1600 * MS} == {0, 240, 720}


@given(st.floats(0.001, 0.5), st.floats(0, 0.999), st.integers(20 * MS, 200 * MS))
def test_between_losses_a_timeout_stays_a_timeout(loss: float, u: float, rtt_ns: int) -> None:
    """The share that meets one follows the loss; its length does not."""
    lost = min(3, int(math.log(1 - u) / math.log(loss)))
    timeout_ns = 200 * MS + rtt_ns
    deeper = max(0.0, math.log(1 - u) / math.log(loss) - 3)
    assert TABLE.one_segment(u, loss, rtt_ns) == pytest.approx(timeout_ns * (2**lost - 1) * 2**deeper, abs=1)


@given(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), st.integers(0, 1))
def test_at_its_own_points_the_table_says_what_was_measured(size: int, loss: int, rtt: int, rate: int) -> None:
    found, coming = TABLE.curve(TABLE.sizes[size], TABLE.losses[loss], TABLE.rtts_ns[rtt], TABLE.rates_bps[rate])
    place = ((size * 3 + loss) * 2 + rtt) * 2 + rate
    assert found == pytest.approx([1000 * each for each in TABLE.excess_us[place]], abs=1)
    assert coming == pytest.approx(1 - TABLE.dead[place])


def test_between_two_sizes_the_excess_grows_with_the_bytes() -> None:
    found, coming = TABLE.curve(325_000, 0.2, 40 * MS, 1e7)
    low, high = (TABLE.excess_us[(size * 3 + 2) * 4] for size in (1, 2))
    assert found == pytest.approx([1000 * (0.75 * a + 0.25 * b) for a, b in zip(low, high, strict=True)])
    assert coming == pytest.approx(1 - 0.25 * 0.32)


def test_the_slices_of_a_large_message_are_as_frequent_as_their_levels_say() -> None:
    tcp, count = stage(loss=0.2, rate_bps=1e7), 20_000
    at = [tcp.advance(message(n, 1_000_000), n * 10**12) for n in range(count)]
    times = Counter(DEAD if each == DROPPED else each - n * 10**12 for n, each in enumerate(at))
    dead = times.pop(DEAD) / count
    shares = [times[at] / count for at in sorted(times)]
    assert [*shares, dead] == pytest.approx([0.5 * 0.68, 0.4 * 0.68, 0.1 * 0.68, 0.32], abs=0.015)


@given(st.integers(1449, 10**8), st.floats(0, 0.6), st.integers(0, 10**9), st.floats(1e3, 1e11))
def test_everywhere_the_quantiles_are_times_that_rise(nbytes: int, loss: float, rtt_ns: int, rate: float) -> None:
    for table in (TABLE, default_table()):
        found, coming = table.curve(nbytes, loss, rtt_ns, rate)
        assert found == sorted(found)
        assert found[0] >= 0
        assert coming <= 1


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**9)), max_size=30))
def test_messages_keep_their_order_and_share_the_rate(sent: list[tuple[int, int]]) -> None:
    tcp, now, last, nbytes = stage(loss=0.05), 0, 0, 0
    for number, (size, pause) in enumerate(sent):
        now += pause
        nbytes += size
        at = tcp.advance(message(number, size), now)
        assert at >= max(last, now + 20 * MS)
        last = at
    assert last >= 20 * MS + nbytes * 1000 if sent else last == 0


def test_what_would_take_too_long_is_dead() -> None:
    tcp = stage(loss=1.0)
    assert tcp.advance(message(0), 0) == DROPPED
    assert isinstance(tcp.enter(message(1), 0)[0], Drop)


def test_a_change_acts_on_what_enters_later_and_a_reset_drops_the_rest() -> None:
    tcp = stage()
    assert isinstance(tcp.enter(message(0, 948), 0)[0], Departure)
    tcp.changed({"latency": constant(delay=5 * MS), "rate_scale": 0.5}, 100 * MS)
    assert tcp.advance(message(1, 948), 10**9) == 10**9 + 5 * MS + 2 * MS
    tcp.enter(message(2, 948), 2 * 10**9)
    dropped = tcp.changed({"state": "down_reset"}, 2 * 10**9 + MS)
    assert [(each.unit.round, each.reason) for each in dropped if isinstance(each, Drop)] == [(2, "reset")]


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="trace"):
        Tcp(1, TABLE, DropList(0, messages=[Match(round=3)]), serial(rate=1e6), constant(delay=0))
    with pytest.raises(ValueError, match="rate"):
        Tcp(1, TABLE, None, serial(rate=0), constant(delay=0))


def test_links_over_tcp_lose_nothing() -> None:
    spec = LinksSpec({"default": {"loss": 0.1, "latency": "20ms", "rate": "10Mbit"}}, {}, 2)
    for _ in range(2):
        path = Links(spec, Streams(1), (), TABLE).path(0, 1)
        times = [path.stages[0].enter(message(n), n * 10**11)[0] for n in range(200)]
        assert all(isinstance(each, Departure) for each in times)
    assert len(path.stages) == 1


def test_the_excess_is_that_of_twice_the_way() -> None:
    """A way of 20 ms is a round trip of 40 ms, one of 50 ms of 100 ms: rows 16 and 18 of the table."""
    nbytes = 100_000
    for number in range(20):
        first, then = (
            stage(loss=0.1, rate_bps=1e7, delay_ms=way_ms).advance(message(number, nbytes), 0)
            - way_ms * MS
            - on_the_line_ns(nbytes, 1e7)
            for way_ms in (20, 50)
        )
        assert first >= 16 * MS
        assert first / 16 == pytest.approx(then / 18)


def test_without_a_rate_a_link_is_as_fast_as_any() -> None:
    tcp = Tcp(7, TABLE, None, serial(rate=1e6), constant(delay=0))
    assert (tcp.loss, tcp.rate) == (0.0, 1e6)
    tcp.changed({"rate": Shape(None)}, 0)
    assert tcp.advance(message(0, SEGMENT), 5) == 5 + (SEGMENT + HEADERS) * 8 // 100


def test_behind_shared_links_the_excess_is_that_of_the_share_and_bytes_and_headers_are_carried_once() -> None:
    """Four messages over an uplink of 8 Mbit/s, one of them over a link of 1 Mbit/s."""
    rules = {"0": {"uplink": "8Mbit", "downlink": "1Gbit"}, "default": {"latency": "20ms"}, "0->4": {"rate": "1Mbit"}}
    links = Links(LinksSpec(rules, {}, 5), Streams(0), (), TABLE)
    sent = [(0, Transit(0, dst, Kind.DATA, 0, 0, 0, 100_000)) for dst in (1, 2, 3, 4)]
    found = {end.unit.dst: end.at_ns for end in drive(links, (), sent)}
    line = 8e9 * (100_000 + 70 * HEADERS)
    for dst, share_bps in ((1, 7e6 / 3), (4, 1e6)):
        excess = TABLE.curve(100_000, 0.0, 40 * MS, share_bps)[0]
        arrives = [line / share_bps + 20 * MS + each for each in excess]
        assert min(abs(found[dst] - each) for each in arrives) < 1e-3 * found[dst]


def test_a_lone_flow_behind_shared_links_takes_what_it_takes_over_its_own_rate() -> None:
    alone, shared = (
        Links(LinksSpec({"default": {"rate": "8Mbit", "latency": "20ms"}} | more, {}, 2), Streams(0), (), TABLE)
        for more in ({}, {"0": {"uplink": "100Mbit"}, "1": {"downlink": "10Mbit"}})
    )
    sent = [(at * MS, Transit(0, 1, Kind.DATA, number, 0, 0, 50_000)) for number, at in enumerate((0, 10, 500))]
    one, other = ([end.at_ns for end in drive(links, (), sent)] for links in (alone, shared))
    assert one == pytest.approx(other, abs=2)


def test_headers_count_on_a_shared_link_whose_links_have_no_rule_of_their_own() -> None:
    links = Links(LinksSpec({"0": {"uplink": "8Mbit"}}, {}, 3), Streams(0), (), TABLE)
    ends = drive(links, (), [(0, Transit(0, dst, Kind.DATA, 0, 0, 0, 2 * SEGMENT)) for dst in (1, 2)])
    assert [end.at_ns for end in ends] == [2 * 2 * (SEGMENT + HEADERS) * 1000] * 2
