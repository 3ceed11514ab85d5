"""The fit of the TCP link model to times measured over real TCP, and a comparison with its predictions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate, pairwise, product
from pathlib import Path
from statistics import fmean, median, variance
from typing import NamedTuple, TypeVar

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import constant
from netdfl.links.rules.loss import Bernoulli
from netdfl.links.rules.rate import serial
from netdfl.links.rules.tcp import Tcp, TcpTable, on_the_line_ns
from netdfl.packets.calibration.measure import GIVE_UP_S, LOSSES, RATES_BPS, RTTS_NS, SIZES, CalibrationCell, Times

T = TypeVar("T")
LEVELS = (*(round(0.01 * step, 2) for step in range(100)), 0.995, 0.999)
DEPTHS = (
    *(0, 0.2, 0.4, 0.6, 0.7, 0.75),
    *(round(0.8 + 0.01 * step, 2) for step in range(30)),
    *(round(1.1 + 0.05 * step, 2) for step in range(108)),
    *(6.5, 7, 8),
)
MEAN_NEEDS = 30
"""The least number of arrived messages for which the mean of a cell (a combination of conditions) is compared."""
_DRAWS = 40_000


def fit(times: Times) -> TcpTable:
    """Return the table of the TCP link model, fitted to the measured times of messages.

    There are times for all cells of the grid: all combinations of size, loss, round-trip time and rate.
    """
    dead_ns = int(GIVE_UP_S * NS_PER_S)

    def latest_first(*cells: CalibrationCell) -> list[float]:
        found = (each for cell in cells for each in _excess_ns(cell, _all(times[cell])))
        return sorted((min(each, 2 * dead_ns) for each in found), reverse=True)

    rows, dead = [], []
    for cell in (CalibrationCell(*each) for each in product(SIZES, LOSSES, RTTS_NS, RATES_BPS)):
        found = latest_first(cell)
        came = [each for each in found if each <= dead_ns]
        rows.append(_slices(came or found, [1 - level for level in LEVELS]))
        dead.append(round(1 - len(came) / len(found), 6))
    singles = [
        _slices(
            latest_first(*(CalibrationCell(SIZES[0], loss, rtt_ns, rate) for rate in RATES_BPS)),
            [loss**depth for depth in DEPTHS],
        )
        for loss, rtt_ns in product(LOSSES[1:], RTTS_NS)
    ]
    first, second = (_timeout_ns(times, rtt_ns) for rtt_ns in RTTS_NS)
    rtts = (second - first) / (RTTS_NS[1] - RTTS_NS[0])
    return TcpTable(
        sizes=SIZES,
        losses=LOSSES,
        rtts_ns=RTTS_NS,
        rates_bps=RATES_BPS,
        levels=LEVELS,
        excess_us=tuple(rows),
        dead=tuple(dead),
        depths=DEPTHS,
        single_us=tuple(singles),
        timeout_ns=int(first - rtts * RTTS_NS[0]),
        timeout_rtts=rtts,
        dead_ns=dead_ns,
    )


def _slices(latest_first: Sequence[float], later: Sequence[float]) -> tuple[int, ...]:
    """Sort messages by their time, cut them into slices, and return the mean time of each slice in microseconds.

    Args:
        latest_first: the times of the messages in ns, the longest first.
        later: for each slice, the share of all messages that take longer than the shortest time in the slice. The
            shares fall from slice to slice, so the slice of the longest times is the last one.
    """
    count, sums = len(latest_first), [0.0, *accumulate(latest_first)]

    def latest(share: float) -> float:
        whole = min(int(share * count), count - 1)
        return sums[whole] + (share * count - whole) * latest_first[whole]

    return tuple(
        round((latest(more) - latest(less)) / (more - less) / count / 1000) for more, less in pairwise((*later, 0.0))
    )


def write(table: TcpTable, file: Path) -> None:
    """Write `table` to a JSON file in the form that `TcpTable.of` reads."""
    data = asdict(table)
    rows = {key: data.pop(key) for key in ("excess_us", "single_us")}
    lists = [
        f' "{key}": [\n  ' + ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in some) + "\n ]"
        for key, some in rows.items()
    ]
    file.write_text(json.dumps(data)[:-1] + ",\n" + ",\n".join(lists) + "}\n", encoding="utf-8")


class ComparedShare(NamedTuple):
    """A share of messages, measured and predicted, with the standard error of the difference.

    Messages of one connection resemble each other, so the standard error, `error`, comes from the differences between
    connections. If messages were independent, the standard error would be `least`; `error` is never below that.
    """

    measured: float
    predicted: float
    error: float
    least: float

    @classmethod
    def of(cls, connections: Sequence[Sequence[bool]], predicted: float) -> ComparedShare:
        """Return the comparison of a measured share with the share `predicted`.

        `connections` has, for each connection and each of its messages, whether the message counts in the share.
        """
        shares = [fmean(each) for each in connections]
        measured, count = fmean(_all(connections)), len(_all(connections))
        middle = (measured + predicted) / 2
        alone = max(middle * (1 - middle), 1 / count**2) / count
        between = variance(shares) / len(shares) if len(shares) > 1 else 0.0
        return cls(measured, predicted, math.sqrt(2 * max(alone, between)), math.sqrt(2 * alone))

    @property
    def kept(self) -> bool:
        """Whether measurement and prediction differ by at most three standard errors."""
        return abs(self.measured - self.predicted) <= 3 * self.error


class FitRow(NamedTuple):
    """The comparison of measured and predicted times in a cell: a combination of size, loss, round-trip time and rate.

    Attributes:
        cell: the conditions of the messages.
        messages: the number of measured messages.
        came: the number of measured messages that arrived.
        median_s: the median time in s, measured and predicted.
        mean_s: the mean time in s of messages that arrived, measured and predicted.
        late: the share of messages that met a time-out.
        dead: the share of messages that never arrived.
    """

    cell: CalibrationCell
    messages: int
    came: int
    median_s: tuple[float, float]
    mean_s: tuple[float, float]
    late: ComparedShare
    dead: ComparedShare

    @property
    def jump(self) -> bool:
        """Whether the median can't be compared, as it lies between messages with a time-out and messages without."""
        return abs(self.late.measured - 0.5) <= 3 * self.late.least

    @property
    def few(self) -> bool:
        """Whether too few messages arrived to compare their mean time."""
        return self.came < MEAN_NEEDS

    @property
    def kept(self) -> bool:
        """Whether measurement and prediction agree.

        The median delay may differ by 15 % and the mean delay by 20 %. The share of messages with a time-out and the
        share that never arrived may each differ by three standard errors.
        """
        return (
            (self.jump or _off(*self.median_s) <= 0.15)
            and (self.few or _off(*self.mean_s) <= 0.2)
            and self.late.kept
            and self.dead.kept
        )

    @property
    def alone(self) -> FitRow:
        """This row with the smaller standard errors that hold if messages of one connection are independent."""
        late, dead = (share._replace(error=share.least) for share in (self.late, self.dead))
        return self._replace(late=late, dead=dead)


def _off(measured: float, predicted: float) -> float:
    """Return by how much `predicted` differs from `measured`, as a relative error; 0 if both are infinite."""
    if math.isinf(measured) or math.isinf(predicted):
        return 0.0 if measured == predicted else math.inf
    return abs(predicted / measured - 1)


def compare(table: TcpTable, times: Times) -> list[FitRow]:
    """Return the predictions of `table` beside the measurements, for each cell (combination of conditions)."""
    return [_row(table, cell, connections) for cell, connections in times.items()]


def _row(table: TcpTable, cell: CalibrationCell, connections: Sequence[Sequence[float]]) -> FitRow:
    measured, predicted = _all(connections), predict(table, cell)
    came, coming = ([each for each in times if math.isfinite(each)] for times in (measured, predicted))
    return FitRow(
        cell,
        len(measured),
        len(came),
        (median(measured), median(predicted)),
        (fmean(came) if came else math.inf, fmean(coming) if coming else math.inf),
        ComparedShare.of([_late(table, cell, some) for some in connections], fmean(_late(table, cell, predicted))),
        ComparedShare.of([list(map(math.isinf, some)) for some in connections], fmean(map(math.isinf, predicted))),
    )


def _all(connections: Sequence[Sequence[T]]) -> list[T]:
    return [each for some in connections for each in some]


def markdown(rows: Sequence[FitRow]) -> str:
    """Return the comparison as a Markdown table with a summary."""
    lines = [
        "| size | loss | RTT | rate | messages | median, s | model | mean, s | model | late | model | dead | model | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, rows),
        "",
        f"{sum(row.kept for row in rows)} of {len(rows)} cells within the bounds "
        f"({sum(row.alone.kept for row in rows)} if messages of one connection were independent of each other); "
        f"not compared: {sum(row.jump for row in rows)} medians (jump), {sum(row.few for row in rows)} means (few).",
    ]
    return "\n".join(lines)


def _line(row: FitRow) -> str:
    cell = row.cell
    what = f"{cell.nbytes >> 10} KiB | {cell.loss:.0%} | {cell.rtt_ns // 10**6} ms | {cell.rate_bps / 1e6:g} Mbit/s"
    times = " | ".join(f"{each:.3f}" if each < math.inf else "dead" for each in (*row.median_s, *row.mean_s))
    shares = " | ".join(f"{each:.1%}" for both in (row.late, row.dead) for each in both[:2])
    marks = " ".join(mark for mark, holds in (("off", not row.kept), ("jump", row.jump), ("few", row.few)) if holds)
    return f"| {what} | {row.messages} | {times} | {shares} | {marks} |"


def put(text: str, page: Path) -> None:
    """Replace the text between the two marks for calibration in the file `page` by `text`."""
    begin, end = ("<!-- calibration: begin -->", "<!-- calibration: end -->")
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no lines {begin} and {end}, between which the table goes; add them")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def predict(table: TcpTable, cell: CalibrationCell, count: int = _DRAWS) -> list[float]:
    """Return the seconds that `count` messages take in simulation under the conditions `cell`, each on an idle link."""
    shape, delay = serial(rate=cell.rate_bps), constant(delay=cell.rtt_ns // 2)
    stage = Tcp(1, table, Bernoulli(0, probability=cell.loss), shape, delay)
    times, apart_ns = [], 1000 * NS_PER_S
    for number in range(count):
        unit = Transit(0, 1, Kind.DATA, number, 0, 0, cell.nbytes)
        at_ns = stage.advance(unit, number * apart_ns)
        times.append((at_ns - number * apart_ns) / NS_PER_S if at_ns >= 0 else math.inf)
    return times


def _excess_ns(cell: CalibrationCell, times: Sequence[float]) -> list[float]:
    least_ns = cell.rtt_ns // 2 + on_the_line_ns(cell.nbytes, cell.rate_bps)
    return [max(0.0, each * NS_PER_S - least_ns) for each in times]


def _late(table: TcpTable, cell: CalibrationCell, times: Sequence[float]) -> list[bool]:
    """Return, for each message, whether TCP had a time-out.

    It had one if the message took more than 0.9 time-outs longer than on a link without loss.
    """
    timeout_ns = table.timeout_ns + table.timeout_rtts * cell.rtt_ns
    return [each > 0.9 * timeout_ns for each in _excess_ns(cell, times)]


def _timeout_ns(times: Times, rtt_ns: int) -> float:
    """Return TCP's first time-out in ns, measured where a message's only segment was lost."""
    guess_ns = 200_000_000 + rtt_ns
    late = [
        each
        for cell, connections in times.items()
        if (cell.nbytes, cell.rtt_ns) == (SIZES[0], rtt_ns)
        for each in _excess_ns(cell, _all(connections))
        if 0.6 * guess_ns < each < 1.5 * guess_ns
    ]
    return median(late)
