"""Fits the tcp link model to times measured over real TCP, and compares what it predicts with others."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Kind
from netdfl.fleet.calibrate import GIVE_UP_S, LOSSES, RATES_BPS, RTTS_NS, SIZES, Cell
from netdfl.links.base import Transit
from netdfl.links.latency import constant
from netdfl.links.loss import Bernoulli
from netdfl.links.rate import serial
from netdfl.links.tcp import Table, Tcp, on_the_line_ns

LEVELS = (0, 0.02, *(round(0.05 * step, 2) for step in range(1, 20)), 0.97, 0.98, 0.99, 1)
_DRAWS = 4000


def fit(times: Mapping[Cell, Sequence[float]]) -> Table:
    """The table of the whole grid; `times` are seconds."""
    dead_ns = int(GIVE_UP_S * NS_PER_S)
    excess_ns = []
    for nbytes, loss, rtt_ns, rate_bps in product(SIZES, LOSSES, RTTS_NS, RATES_BPS):
        cell = Cell(nbytes, loss, rtt_ns, rate_bps)
        found = sorted(min(each, 10 * dead_ns) for each in _excess_ns(cell, times[cell]))
        excess_ns.append(tuple(int(_quantile(found, level)) for level in LEVELS))
    first, second = (_timeout_ns(times, rtt_ns) for rtt_ns in RTTS_NS)
    rtts = (second - first) / (RTTS_NS[1] - RTTS_NS[0])
    return Table(
        sizes=SIZES,
        losses=LOSSES,
        rtts_ns=RTTS_NS,
        rates_bps=RATES_BPS,
        levels=LEVELS,
        excess_ns=tuple(excess_ns),
        timeout_ns=int(first - rtts * RTTS_NS[0]),
        timeout_rtts=rtts,
        dead_ns=dead_ns,
    )


def write(table: Table, file: Path) -> None:
    """Write `table` as `links.tcp` reads it."""
    data = {key: value for key, value in asdict(table).items() if key != "excess_ns"}
    rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in table.excess_ns)
    file.write_text(json.dumps(data)[:-1] + f',\n "excess_ns": [\n  {rows}\n]}}\n', encoding="utf-8")


class Row(NamedTuple):
    """One cell: measured and predicted seconds, and the shares later than one time-out, which may differ by `sure`."""

    cell: Cell
    messages: int
    median_s: tuple[float, float]
    mean_s: tuple[float, float]
    late: tuple[float, float]
    sure: float

    @property
    def kept(self) -> bool:
        """Median within 15 %, mean within 20 %, late share within three standard errors of the difference."""
        off = [_off(*self.median_s), _off(*self.mean_s)]
        return off[0] <= 0.15 and off[1] <= 0.2 and abs(self.late[0] - self.late[1]) <= self.sure


def _off(measured: float, predicted: float) -> float:
    """The relative error; none where both are infinite."""
    if math.isinf(measured) or math.isinf(predicted):
        return 0.0 if measured == predicted else math.inf
    return abs(predicted / measured - 1)


def compare(table: Table, times: Mapping[Cell, Sequence[float]]) -> list[Row]:
    """What `table` predicts against what was measured, cell by cell. Means are of messages that came."""
    rows = []
    for cell, measured in times.items():
        predicted = predict(table, cell)
        shares = tuple(_late(table, cell, each) for each in (measured, predicted))
        together = (shares[0] + shares[1]) / 2
        sure = 3 * math.sqrt(max(together * (1 - together), 1 / len(measured) ** 2) * 2 / len(measured))
        some, others = ([each for each in both if math.isfinite(each)] for both in (measured, predicted))
        rows.append(
            Row(
                cell,
                len(measured),
                (median(measured), median(predicted)),
                (fmean(some) if some else math.inf, fmean(others) if others else math.inf),
                (shares[0], shares[1]),
                sure,
            )
        )
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """The comparison as a table of a page."""
    lines = [
        "| size | loss | RTT | rate | median, s | model | mean, s | model | late | model | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cell = row.cell
        what = f"{cell.nbytes >> 10} KiB | {cell.loss:.0%} | {cell.rtt_ns // 10**6} ms | {cell.rate_bps / 1e6:g} Mbit/s"
        times = " | ".join(f"{each:.3f}" if each < math.inf else "dead" for each in (*row.median_s, *row.mean_s))
        lines.append(f"| {what} | {times} | {row.late[0]:.0%} | {row.late[1]:.0%} | {'' if row.kept else 'off'} |")
    return "\n".join(lines)


def predict(table: Table, cell: Cell, count: int = _DRAWS) -> list[float]:
    """Seconds that `count` messages of `cell` take in the simulated world, each on an idle link."""
    shape, delay = serial(rate=cell.rate_bps), constant(delay=cell.rtt_ns // 2)
    stage = Tcp(1, table, Bernoulli(0, probability=cell.loss), shape, delay)
    times, apart_ns = [], 1000 * NS_PER_S
    for number in range(count):
        unit = Transit(0, 1, Kind.DATA, number, 0, 0, cell.nbytes)
        at_ns = stage.advance(unit, number * apart_ns)
        times.append((at_ns - number * apart_ns) / NS_PER_S if at_ns >= 0 else math.inf)
    return times


def _excess_ns(cell: Cell, times: Sequence[float]) -> list[float]:
    least_ns = cell.rtt_ns // 2 + on_the_line_ns(cell.nbytes, cell.rate_bps)
    return [max(0.0, each * NS_PER_S - least_ns) for each in times]


def _late(table: Table, cell: Cell, times: Sequence[float]) -> float:
    """The share of messages that met a time-out: whose excess is (but for a tenth) as long as one."""
    timeout_ns = table.timeout_ns + table.timeout_rtts * cell.rtt_ns
    return fmean(each > 0.9 * timeout_ns for each in _excess_ns(cell, times))


def _timeout_ns(times: Mapping[Cell, Sequence[float]], rtt_ns: int) -> float:
    """The first time-out after the loss of a message's only segment."""
    guess_ns = 200_000_000 + rtt_ns
    late = [
        each
        for cell, found in times.items()
        if (cell.nbytes, cell.rtt_ns) == (SIZES[0], rtt_ns)
        for each in _excess_ns(cell, found)
        if 0.6 * guess_ns < each < 1.5 * guess_ns
    ]
    return median(late)


def _quantile(ordered: Sequence[float], level: float) -> float:
    place = level * (len(ordered) - 1)
    left = min(int(place), len(ordered) - 2)
    return ordered[left] + (place - left) * (ordered[left + 1] - ordered[left])
