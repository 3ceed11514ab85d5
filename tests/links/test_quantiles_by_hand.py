"""Each distribution of delays by its own formula, and TCP's excess by a plain interpolation of its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.rules import latency
from netdfl.links.rules.base import DROPPED, Transit
from netdfl.links.rules.latency import Delay, Latency
from netdfl.links.rules.rate import Rate, Shape
from netdfl.links.rules.tcp import HEADERS, SEGMENT, TcpTable, default_table, on_the_line_ns
from netdfl.links.spec import choose

MS = 10**6
Z = NormalDist()
US = (0.001, 0.25, 0.5, 0.9, 0.999)
BELOW = Z.cdf(-0.5)
"""The share of a normal delay of mean 10 and deviation 20 that would be below zero."""

FORMULAS: dict[str, tuple[dict[str, Any], Callable[[float], float], float]] = {
    "uniform": ({"low": 10, "high": 30}, lambda u: 10 + 20 * u, 20),
    "normal": (
        {"mean": 10, "jitter": 20},
        lambda u: max(0.0, 10 + 20 * Z.inv_cdf(BELOW + (1 - BELOW) * u)),
        10 + 20 * Z.pdf(0.5) / Z.cdf(0.5),
    ),
    "lognormal": (
        {"mean": 100, "jitter": 50},
        lambda u: 100 / math.sqrt(1.25) * math.exp(math.sqrt(math.log(1.25)) * Z.inv_cdf(u)),
        100,
    ),
    "exponential": ({"mean": 100}, lambda u: 100 * math.log(1 / (1 - u)), 100),
    "pareto": ({"minimum": 100, "shape": 3}, lambda u: 100 / (1 - u) ** (1 / 3), 150),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_delays_quantiles_and_mean_are_those_of_its_distribution(name: str) -> None:
    parameters, quantile, mean = FORMULAS[name]
    delay = getattr(latency, name)(**parameters)
    assert [delay.quantile(u) for u in US] == pytest.approx([quantile(u) for u in US])
    assert (delay.mean_ns, delay.fifo, delay.constant_ns) == (pytest.approx(mean), True, 0)
    assert getattr(latency, name)(**parameters, order="free").fifo is False
    chosen = choose("latency", {"dist": name, **parameters})
    assert chosen is not None
    assert chosen.build().mean_ns == delay.mean_ns  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("lognormal", key) for key in ("mean", "jitter")),
        ("normal", "jitter"),
        ("exponential", "mean"),
        ("pareto", "minimum"),
    ],
)
def test_what_can_not_vary_is_refused_from_zero_on(name: str, key: str) -> None:
    parameters = FORMULAS[name][0]
    for value, shown in ((0, "0s"), (-1_000_000, "-1ms")):
        with pytest.raises(ValueError, match=f"latency {key} = {shown} must be above 0"):
            getattr(latency, name)(**parameters | {key: value})
    assert getattr(latency, name)(**parameters | {key: 1}).quantile is not None
    assert latency.normal(mean=0, jitter=1).mean_ns == pytest.approx(math.sqrt(2 / math.pi))


def test_a_range_of_delays_may_be_one_and_not_be_upside_down() -> None:
    assert latency.uniform(low=5, high=5).mean_ns == 5
    with pytest.raises(ValueError, match="exchange them"):
        latency.uniform(low=6, high=5)
    assert latency.constant(delay=7) == Delay(fifo=True, constant_ns=7, mean_ns=7)


@pytest.mark.parametrize(
    ("text", "delays_ms"),
    [
        ("3ms\n1ms\n2ms", [1, 2, 3]),
        ("delay_ms\n3\n1", [1, 3]),
        ("rtt_s,x\n0.003,9\n\n,8\n0.001,9", [1, 3]),
        ("delay_ms\n3us\n1", [0.003, 1]),
        ("delay\n3ms", [3]),
        (" 0ms \n4ms", [0, 4]),
    ],
)
def test_measured_delays_are_each_as_likely(text: str, delays_ms: list[float], tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    delay = latency.empirical(file=str(tmp_path / "file"))
    assert delay.quantile is not None
    count = len(delays_ms)
    found = [delay.quantile((n + part) / count) for n in range(count) for part in (0.01, 0.99)]
    assert found == [ms * MS for ms in delays_ms for _ in range(2)]
    assert delay.mean_ns == pytest.approx(sum(delays_ms) / count * MS)


@pytest.mark.parametrize("text", ["", "delay_ms\n", "-1ms\n", "3\n", "delay\n3\n", "delay_ms\nx\n"])
def test_what_is_no_delay_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match="file"):
        latency.empirical(file=str(tmp_path / "file"))


def test_in_order_nothing_overtakes_and_else_it_may() -> None:
    units = [Transit(0, 1, Kind.DATA, n, 0, 0, 1) for n in range(50)]
    quantile = FORMULAS["uniform"][1]
    for fifo in (True, False):
        stage = Latency(3, Delay(fifo, quantile=lambda u: 1000 * quantile(u)))
        at_ns = [stage.advance(each, n) for n, each in enumerate(units)]
        assert (at_ns == sorted(at_ns)) is fifo
        assert len(set(at_ns)) > 3
    half = Latency(3, Delay(False, quantile=lambda u: 1001.9))
    half.changed({"latency_scale": 0.5}, 0)
    assert half.advance(units[0], 0) == 500, "whole nanoseconds, and then the half of them"


@pytest.mark.parametrize("rate", [3e9, 7e9])
def test_a_serializer_rests_once_all_bytes_have_passed_to_the_nanosecond(rate: float) -> None:
    stage = Rate(Shape(rate, burst_bytes=10**6))
    ends_ns = math.ceil(8e9 * 1000 / rate)
    assert stage.advance(Transit(0, 1, Kind.DATA, 0, 0, 0, 1000), 0) == 0
    assert [stage.rests(at_ns) for at_ns in (0, ends_ns - 1, ends_ns)] == [False, False, True]


# tcp

TABLE = TcpTable(
    sizes=(1000, 100_000, 1_000_000),
    losses=(0.0, 0.1, 0.2),
    rtts_ns=(40 * MS, 100 * MS),
    rates_bps=(1e7, 1e8),
    levels=(0.0, 0.5, 0.9),
    excess_us=tuple((place**2 * 10, place**2 * 20, place**2 * 50) for place in range(36)),
    dead=tuple(0.001 * place for place in range(36)),
    depths=(0.0, 1.0, 2.0, 3.0),
    single_us=tuple(tuple(100 * (row + 1) * (2**depth - 1) for depth in range(4)) for row in range(4)),
    timeout_ns=200 * MS,
    timeout_rtts=1.0,
    dead_ns=10**11,
)


def along(axis: Sequence[float], x: float, values: Sequence[float]) -> float:
    """On the line through the two points between which `x` lies, or that are nearest to it."""
    left = max(n for n in range(len(axis) - 1) if n == 0 or axis[n] <= x)
    share = (x - axis[left]) / (axis[left + 1] - axis[left])
    return values[left] + share * (values[left + 1] - values[left])


def interpolated(table: TcpTable, of: Sequence[float], nbytes: float, loss: float, rtt_ns: float, bps: float) -> float:
    rates = [math.log(each) for each in table.rates_bps]
    bps = min(max(bps, table.rates_bps[0]), table.rates_bps[-1])
    rows = iter(of)
    cube = [[[[next(rows) for _ in rates] for _ in table.rtts_ns] for _ in table.losses] for _ in table.sizes]
    by_size = []
    for per_loss in cube:
        by_loss = [
            along(table.rtts_ns, rtt_ns, [along(rates, math.log(bps), row) for row in rtts]) for rtts in per_loss
        ]
        by_size.append(along(table.losses, loss, by_loss))
    return along(table.sizes, nbytes, by_size)


@given(st.integers(1449, 3 * 10**6), st.floats(0, 0.5), st.integers(10 * MS, 300 * MS), st.floats(1e6, 1e9))
@example(100_000, 0.1, 100 * MS, 1e8)
@example(1500, 0.0, 40 * MS, 1e7)
@example(2_000_000, 0.3, 200 * MS, 5e8)
@example(50_000, 0.15, 10 * MS, 1e6)
def test_the_excess_lies_on_straight_lines_between_what_was_measured(
    nbytes: int, loss: float, rtt_ns: int, bps: float
) -> None:
    slices, coming = TABLE.curve(nbytes, loss, rtt_ns, bps)
    levels = [interpolated(TABLE, [row[n] for row in TABLE.excess_us], nbytes, loss, rtt_ns, bps) for n in range(3)]
    expected, least = [], 0.0
    for each in levels:
        least = max(least, 1000 * each)
        expected.append(least)
    assert slices == pytest.approx(expected, rel=1e-9, abs=1e-3)
    assert coming == pytest.approx(min(1.0, 1 - interpolated(TABLE, TABLE.dead, nbytes, loss, rtt_ns, bps)))


@given(st.floats(0, 0.9999), st.floats(0.001, 0.6), st.integers(10 * MS, 300 * MS))
@example(0.99, 0.1, 40 * MS)
@example(0.5, 0.05, 100 * MS)
@example(0.99999, 0.1, 70 * MS)
def test_a_segments_excess_is_that_of_its_losses_in_a_row_and_doubles_beyond_the_table(
    u: float, loss: float, rtt_ns: int
) -> None:
    depth = math.log(1 - u) / math.log(loss)
    place = min(int(depth), 3)
    rows = iter(each[place] for each in TABLE.single_us)
    by_loss = [along(TABLE.rtts_ns, rtt_ns, [next(rows) for _ in TABLE.rtts_ns]) for _ in TABLE.losses[1:]]
    found = 1000 * along(TABLE.losses[1:], max(loss, TABLE.losses[1]), by_loss)
    expected = max(0.0, found) * 2 ** max(0.0, min(depth, 99) - 3)
    assert TABLE.one_segment(u, loss, rtt_ns) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert TABLE.one_segment(u, 0.0, rtt_ns) == 0.0
    assert TABLE.one_segment(u, 1.0, rtt_ns) == math.inf


@pytest.mark.parametrize(("nbytes", "packets"), [(1, 1), (SEGMENT, 1), (SEGMENT + 1, 2), (10 * SEGMENT, 10), (0, 0)])
def test_a_messages_bytes_take_the_line_with_a_header_for_each_packet(nbytes: int, packets: int) -> None:
    assert on_the_line_ns(nbytes, 8e9) == nbytes + packets * HEADERS
    assert on_the_line_ns(nbytes, 3e9) == math.ceil((nbytes + packets * HEADERS) * 8 / 3)


def test_the_table_that_is_shipped_is_whole_and_read_once() -> None:
    table = default_table()
    assert table is default_table()
    rows = len(table.sizes) * len(table.losses) * len(table.rtts_ns) * len(table.rates_bps)
    assert (len(table.excess_us), len(table.dead)) == (rows, rows)
    assert {len(row) for row in table.excess_us} == {len(table.levels)}
    assert len(table.single_us) == (len(table.losses) - 1) * len(table.rtts_ns)
    assert {len(row) for row in table.single_us} == {len(table.depths)}
    assert all(isinstance(each, tuple) for each in (table.sizes, table.excess_us, table.single_us))
    assert DROPPED < 0 < table.dead_ns
